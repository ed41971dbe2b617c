"""A model of a service: its directory, its facts, and how it is opened."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, file_digest
from typing import TYPE_CHECKING
from weakref import ref

from tformer_cli.artifacts.config_file import DOUBT, PARTS, SHORTLIST, WEIGHTS, read_config
from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.kinds import kind_named
from tformer_cli.kinds.serving import Translating
from tformer_cli.text.languages import main_code
from tformer_cli.text.tokenizer import read_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tformer_cli.artifacts.config_file import ConfigFile, TaskKind, Verb
    from tformer_cli.inspect.doubt import Doubter
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.serve.engine import Engine, State
    from tformer_cli.text.tokenizer import Tokenizer

MEMORY_OF_FILE = 4
"""Assumed memory of a model before it was opened, as a multiple of its weights file."""


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Facts about a model, open or not."""

    name: str
    kind: TaskKind
    verbs: tuple[Verb, ...]
    """Verbs that it supports."""
    source_language: str = ""
    target_language: str = ""
    languages: tuple[str, ...] = ()
    """Codes of a multilingual model, each both source and target."""
    doubt: bool = False
    """True if it can estimate the probability that a translation is wrong."""
    state: State = "unloaded"
    bytes: int = 0
    """Private memory that opening it took; 0 if unknown or not opened yet."""
    hash: str = ""
    """The hash of its files, once it was opened."""


class ServedModel:
    """A model directory with its engine."""

    def __init__(self, name: str, path: Path, config: ConfigFile) -> None:
        self.name, self.path, self.config = name, path, config
        self.kind = kind_named(config.task)
        # The service does not support scores of pairs
        self.verbs: tuple[Verb, ...] = tuple(verb for verb in self.kind.verbs if verb != "score")
        self.tokenizer: Tokenizer | None = None
        self.languages: tuple[str, ...] = ()
        if "translate" in self.verbs and not (config.source_language and config.target_language):
            tokenizer = read_tokenizer(path)
            self.languages = tokenizer.language_codes
            self.tokenizer = tokenizer if self.languages else None
        # Sets, since listing hundreds of languages checks every pair
        self._codes = frozenset(self.languages)
        self._main_codes = frozenset(map(main_code, self.languages))
        # From its file, as the page asks before the model is opened
        self.is_calibrated = False
        if (path / DOUBT).is_file():
            from tformer_cli.inspect.doubt import calibration_of

            with suppress(ArtifactError):
                self.is_calibrated = bool(calibration_of(path, config.step))
        self.engine: Engine
        self.aligner: ref[Aligner] | None = None
        """Aligns words from recorded attention, while the model is open."""

    def check_kind(self) -> None:
        """Refuses files of another kind or language: the offer of the service stays fixed."""
        config = read_config(self.path)
        codes = self.languages and read_tokenizer(self.path).language_codes
        same = ("task", "source_language", "target_language")
        if codes != self.languages or any(
            getattr(config, name) != getattr(self.config, name) for name in same
        ):
            raise ArtifactError(
                f"{self.path}: is a model of another kind or language now; restart the service"
            )
        self.config = config

    @property
    def assumed_bytes(self) -> int:
        """Estimate of the memory that opening it takes."""
        if self.engine.bytes:
            return self.engine.bytes
        try:
            return MEMORY_OF_FILE * (self.path / WEIGHTS).stat().st_size
        except OSError:
            return 0  # opening it reports the error

    def info(self) -> ModelInfo:
        config, engine = self.config, self.engine
        return ModelInfo(
            name=self.name,
            kind=config.task,
            verbs=self.verbs,
            source_language=config.source_language,
            target_language=config.target_language,
            languages=self.languages,
            doubt=self.is_calibrated,
            state=engine.state,
            bytes=engine.bytes,
            hash=engine.hash,
        )

    def translates(self, source: str, target: str, *, is_exact: bool) -> bool:
        """True if it translates from one language to another."""
        if "translate" not in self.verbs:
            return False

        own = (self.config.source_language, self.config.target_language)
        codes, pair = self._codes, (source, target)
        if not is_exact:
            own, pair = (
                (main_code(own[0]), main_code(own[1])),
                (main_code(source), main_code(target)),
            )
            codes = self._main_codes
        return codes.issuperset(pair) if codes else own == pair


def pack_model(model: ServedModel, opened: Opened) -> Callable[[Verb], Serving]:
    """Runs a warm-up, so that weights are packed and forked children share them.

    With a shortlist, the output weights are packed only when a request needs all words.
    """
    aligner = find_aligner(opened) if "translate" in model.verbs else None
    model.aligner = None if aligner is None else ref(aligner)
    model.is_calibrated = False  # its file may be stale by now
    doubter = find_doubter(model, opened) if "translate" in model.verbs else None

    def serving(verb: Verb) -> Serving:
        computation = model.kind.serving(opened, verb)
        # The engine drops this function, and so the aligner, with the model
        if isinstance(computation, Translating):
            computation.heads = () if aligner is None else aligner.heads
            computation.doubter = doubter
        return computation

    serving(model.verbs[0]).warm_up()
    return serving


def find_aligner(opened: Opened) -> Aligner | None:
    from tformer_cli.inspect.jobs.align import Aligner

    try:
        return Aligner(opened.directory)
    except TformerError:  # its alignment heads are pruned
        return None


def find_doubter(model: ServedModel, opened: Opened) -> Doubter | None:
    """Reads the calibration again, as it may be newer than the service."""
    from tformer_cli.inspect.doubt import Doubter

    with suppress(ArtifactError):
        doubter = Doubter(opened.directory)
        model.is_calibrated = True
        return doubter
    return None


def choose_languages(tokenizer: Tokenizer | None) -> dict[str, str]:
    """Chooses languages for opening a multilingual model; each request sets its own."""
    if tokenizer is None:
        return {}
    code = tokenizer.language_codes[0]
    for sides in (("target",), ("source", "target"), ("source",)):
        options = {side: code for side in sides}
        try:
            tokenizer.for_languages(options.get("source"), options.get("target")).check_languages()
        except UsageError:
            continue
        return {f"{side}_language": code for side in sides}
    return {}


def hash_of(path: Path) -> str:
    """Hashes the files of a model that decide what it computes."""
    digest = blake2b(digest_size=16)
    for name in (*PARTS, SHORTLIST):
        file = path / name
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(file_digest(stream, partial(blake2b, digest_size=16)).digest())
    return digest.hexdigest()
