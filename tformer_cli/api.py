"""A model that is loaded once and called many times, from any number of threads."""

from __future__ import annotations

import importlib
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from weakref import WeakSet

from tformer_cli.artifacts.config_file import COMMANDS, CONFIG, MODELS, read_config
from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.files.cache import as_named
from tformer_cli.kinds import kind_named, kind_of, reads_names
from tformer_cli.kinds.kind import MACHINE
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.lines.embed import checked_pooling, embed_texts
from tformer_cli.kinds.lines.fill import TOP, GapFiller
from tformer_cli.kinds.lines.generate import BUFFER_PROMPTS
from tformer_cli.kinds.lines.job import aligned_pairs, usual_buffer
from tformer_cli.kinds.lines.score import PAIRS_AT_ONCE, score_pairs
from tformer_cli.kinds.opening import open_model, resolved
from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions
from tformer_cli.search.opening import generation_config, overridden, split_options
from tformer_cli.search.translator import BUFFER_LINES
from tformer_cli.settings import type_problem
from tformer_cli.text.lines import check_lines, given_lines
from tformer_cli.wording import did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.heads.names import CaptureMode
    from tformer_cli.inspect.jobs.heads import HeadInspector
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.inspect.weighting.weighting import WeightingName
    from tformer_cli.kinds.kind import Kind
    from tformer_cli.kinds.lines.classify import LabeledText
    from tformer_cli.kinds.lines.embed import EmbeddedText
    from tformer_cli.kinds.lines.fill import FilledText
    from tformer_cli.kinds.lines.job import TooLong
    from tformer_cli.kinds.lines.score import ScoredPair
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.kinds.tag import TaggedText
    from tformer_cli.model.config import Pooling
    from tformer_cli.search.generator import Generation
    from tformer_cli.search.translator import Translation, Translator


@contextmanager
def _in_python() -> Iterator[None]:
    """Lets errors name arguments where the command line has options, and what the caller named."""
    try:
        yield
    except TformerError as error:
        error.args = (_python_words(as_named(str(error))), *error.args[1:])
        raise


def _python_words(message: str) -> str:
    """Writes ``--beam-size`` as ``beam_size``, but in commands, which stand in backticks."""
    parts = message.replace(" (--images takes all)", "").split("`")
    parts[::2] = [_OPTION.sub(_argument, part) for part in parts[::2]]
    return "`".join(parts)


def _argument(option: re.Match[str]) -> str:
    name = ARGUMENTS.get(option[1], option[1].replace("-", "_"))
    return name if option[2] is None else f'{name}="{option[2]}"'


@_in_python()
def load_model(model: Path | str, **options: Unpack[TranslatorOptions]) -> LoadedModel:
    """Opens a model; see `tformer_cli.load`."""
    known = TranslatorOptions.__annotations__
    for name in options:
        if name not in known:
            guess = did_you_mean(suggestions(name, known)) or "see `tformer guide python`"
            raise UsageError(f"{name}: is not a setting of a loaded model; {guess}")
    path = resolved(model, split_options(options)[0])
    if not (path / CONFIG).is_file():
        return LoadedModel(open_model(path, **options), options)  # raises, and says why
    kind = kind_named(read_config(path).task)
    if not kind.searches:
        options = cast(
            "TranslatorOptions", {name: one for name, one in options.items() if one is not None}
        )
        for name in options:
            if name not in MACHINE:
                raise UsageError(f"{name}: is not a setting of {MODELS[kind.name]}; omit it")
    return LoadedModel(open_model(path, kind.verbs[0], **options), options)


_OPTION = re.compile(r"(?<![\w/])--([a-z][a-z-]*[a-z])(?: (truncate|error)\b)?")
ARGUMENTS: Mapping[str, str] = MappingProxyType({"stop": "stops"})
"""Arguments that are not called as the options are."""


def _given(
    lines: Iterable[str | Path | NDArray[np.uint8]], directory: ModelDirectory
) -> Iterator[str]:
    """Returns the lines that were given; of images names that stand for them."""
    if not reads_names(directory.config):
        return given_lines(cast("Iterable[str]", lines))
    from tformer_cli.text.images.named import name_of_image

    check_lines(lines, "images")
    return (name_of_image(image, f"images[{number}]") for number, image in enumerate(lines))


def _check_search(method: str, search: Mapping[str, object]) -> None:
    """Checks that settings of one call are of the search.

    Raises:
        TypeError: as Python raises it of an unknown argument; it names the nearest.
    """
    known = DecodingOverrides.__annotations__
    for name in search:
        if name not in known:
            of_load = "give it to tformer_cli.load" * (name in TranslatorOptions.__annotations__)
            guess = (
                of_load or did_you_mean(suggestions(name, known)) or "see `tformer guide python`"
            )
            raise TypeError(f"{name}: is not an argument of {method}(); {guess}")


# A child of a fork has the locks of all threads, but one thread only: a fork waits for all of them.
_locks: WeakSet[Any] = WeakSet()
_adding, _held = RLock(), list[Any]()


def _acquire_all() -> None:
    _adding.acquire()
    _held[:] = _locks
    for lock in _held:
        lock.acquire()


def _release_all() -> None:
    while _held:
        _held.pop().release()
    _adding.release()


# What is registered last is called first. The library of thread pools has a lock for forks, too,
# which whoever computes asks for: it must be acquired after ours.
importlib.import_module("concurrent.futures.thread")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )

Result = TypeVar("Result")


class LoadedModel:
    """A model to call: what it was trained for, it does.

    A translation model translates and scores, a classifier classifies, a language model generates,
    an encoder embeds, and fills gaps if it was trained to. Methods of another task raise an
    `ArtifactError` that says what the model is.

    Methods check their settings at once and return iterators, which compute when they are asked for
    a result and read no more than a buffer ahead. Several threads may use the same model: it
    computes for one of them at a time, a buffer or a sentence, and each gets what it would get
    alone. One iterator belongs to one thread. A process may be forked meanwhile: that waits for the
    buffer that is being computed, and the model works in both.
    """

    def __init__(self, opened: Opened, options: TranslatorOptions | None = None) -> None:
        """Takes an opened model.

        Args:
            opened: from `open_model`; the functions of `tformer_cli.kinds.lines` take it, too.
            options: that it was opened with.
        """
        self.opened = opened
        """The model directory as the features know it."""
        self._options = options or {}
        self._filler: GapFiller | None = None
        self._for_inspection: Opened | None = None
        # Encoders are packed, and language models have no translator: both are opened again
        if "translate" in self._kind.verbs and opened.precision == "float32":
            self._for_inspection = opened if opened.engine in ("tformer", "torch") else None
        # One at a time: engines have buffers of their own, and taps listen to whoever computes
        self._lock = RLock()
        with _adding:
            _locks.add(self._lock)

    def __repr__(self) -> str:
        opened = self.opened
        return f"<{as_named(str(opened.directory.path))}: {opened.precision} on {opened.place}>"

    @_in_python()
    def translate(
        self,
        lines: Iterable[str],
        *,
        buffer_lines: int = BUFFER_LINES,
        **search: Unpack[DecodingOverrides],
    ) -> Iterator[Translation]:
        """Translates lines as they come, in order, one translation a line.

        Args:
            lines: source sentences.
            buffer_lines: lines that are batched together; 1 answers line by line.
            **search: settings of this call's search, such as `beam_size` and `n_best`.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            UsageError: if a setting is impossible.
        """
        _check_search("translate", search)
        translator = self._translator(self._opened_for("translate"), search)
        return self._computed(translator.translate, given_lines(lines), buffer_lines)

    def _computed(
        self,
        compute: Callable[[list[str], int], list[Result]],
        lines: Iterator[str],
        buffer_lines: int,
    ) -> Iterator[Result]:
        """Computes the results of lines, a buffer at a time, once they are asked for."""
        if problem := type_problem(buffer_lines, int):
            raise TypeError(f"buffer_lines: {problem}")
        if buffer_lines < 1:
            raise ValueError(f"buffer_lines: must be at least 1, but is {buffer_lines}")

        def results() -> Iterator[Result]:
            first = 0
            while buffer := list(islice(lines, buffer_lines)):
                with self._lock, _in_python():
                    found = compute(buffer, first)
                yield from found
                first += len(buffer)

        return results()

    @_in_python()
    def score(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[ScoredPair]:
        """Scores translations that are given, by forced decoding.

        Args:
            sources: source sentences.
            targets: a translation of each.

        Raises:
            TypeError: if a side is one string, or holds something else.
            DataError: while it is read, if one side has more lines.
        """
        return self._scores(
            self._opened_for("translate"),
            aligned_pairs(
                given_lines(sources, "sources"),
                given_lines(targets, "targets"),
                ("sources", "targets"),
            ),
        )

    def _scores(self, opened: Opened, pairs: Iterator[tuple[str, str]]) -> Iterator[ScoredPair]:
        n_done = 0
        while buffer := list(islice(pairs, PAIRS_AT_ONCE)):
            with self._lock, _in_python():
                found = score_pairs(opened, buffer, n_done)
            yield from found
            n_done += len(buffer)

    @_in_python()
    def classify(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        *,
        buffer_lines: int | None = None,
        too_long: TooLong = "truncate",
    ) -> Iterator[LabeledText]:
        """Labels texts or images as they come, in order; a blank one gets no label.

        Args:
            lines: the texts, or images: names as for the command, paths, or arrays (H, W) or
                (H, W, C) of bytes.
            buffer_lines: lines that are batched together; 1 answers line by line; None: as many
                as usual, of large images only some.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no classifier.
            DataError: while it is read, if a text is too long and `too_long` is "error", or an
                image cannot be read.
        """
        label = partial(label_texts, self._opened_for("classify"), too_long=too_long)
        return self._computed(
            lambda texts, first: label(texts, first_index=first),
            _given(lines, self.opened.directory),
            usual_buffer(self.opened.directory) if buffer_lines is None else buffer_lines,
        )

    @_in_python()
    def tag(
        self, lines: Iterable[str], *, buffer_lines: int = BUFFER_LINES
    ) -> Iterator[TaggedText]:
        """Labels the words of texts as they come, in order; a blank text has none.

        Args:
            lines: the texts, whose words white space separates.
            buffer_lines: lines that are batched together; 1 answers line by line.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no tagger.
        """
        from tformer_cli.kinds.tag import tag_texts

        label = partial(tag_texts, self._opened_for("tag"))
        return self._computed(label, given_lines(lines), buffer_lines)

    @_in_python()
    def embed(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        *,
        buffer_lines: int | None = None,
        pooling: Pooling | None = None,
        unit_length: bool | None = None,
        too_long: TooLong = "truncate",
    ) -> Iterator[EmbeddedText]:
        """Turns texts or images into vectors as they come, in order; a blank one has none.

        Args:
            lines: the texts, or images as for `classify`.
            buffer_lines: lines that are batched together; 1 answers line by line; None: as many
                as usual, of large images only some.
            pooling: "mean", "first", or of images "first-and-mean"; None: that of the model's
                settings.
            unit_length: whether vectors are divided by their length; None: see `pooling`.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no encoder alone.
            UsageError: if it has not what is to be pooled.
            DataError: while it is read, if a text is too long and `too_long` is "error", or an
                image cannot be read.
        """
        opened = self._opened_for("embed")
        kind = checked_pooling(opened.directory.config, pooling)
        embed = partial(
            embed_texts, opened, pooling=kind, unit_length=unit_length, too_long=too_long
        )
        return self._computed(
            lambda texts, first: embed(texts, first_index=first),
            _given(lines, opened.directory),
            usual_buffer(opened.directory) if buffer_lines is None else buffer_lines,
        )

    @_in_python()
    def fill(
        self,
        lines: Iterable[str],
        *,
        buffer_lines: int = BUFFER_LINES,
        top: int = TOP,
        too_long: TooLong = "truncate",
    ) -> Iterator[FilledText]:
        """Fills the gaps of texts as they come, in order; a gap is ``[MASK]`` or ``<mask>``.

        Args:
            lines: the texts.
            buffer_lines: lines that are batched together; 1 answers line by line.
            top: candidates of each gap; 0: the whole vocabulary.
            too_long: what becomes of texts longer than the model takes.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            ArtifactError: if the model is no masked language model.
            DataError: while it is read, if a text is too long and `too_long` is "error".
        """
        if self._filler is None:
            self._filler = GapFiller(self._opened_for("fill"))
        fill = partial(self._filler.fill, top=top, too_long=too_long)
        return self._computed(
            lambda texts, first: fill(texts, first_index=first), given_lines(lines), buffer_lines
        )

    @_in_python()
    def generate(
        self,
        prompts: Iterable[str] = ("",),
        *,
        stops: Sequence[str] = (),
        buffer_prompts: int = BUFFER_PROMPTS,
        **search: Unpack[DecodingOverrides],
    ) -> Iterator[Generation]:
        """Continues prompts as they come, in order; an empty one is the beginning of a text.

        Args:
            prompts: the prompts.
            stops: texts that end what is written.
            buffer_prompts: prompts that are batched together; 1 answers one by one.
            **search: settings of this call's search or sampling, such as `max_length`, `top_p`.

        Raises:
            TypeError: if the prompts are one string, or hold something else.
            ValueError: if `buffer_prompts` is not positive.
            ArtifactError: if the model is no language model.
            UsageError: if a setting is impossible; while it is read, if a prompt is empty and the
                model knows no beginning of texts.
        """
        generator = self._opened_for("generate").generator
        _check_search("generate", search)
        if search or stops:
            tell = self._options.get("tell")
            config = generation_config(generator.config, tell, **search)
            generator = generator.with_config(config, stops)
        return self._computed(
            lambda texts, first: generator.generate(texts, range(first, first + len(texts))),
            given_lines(prompts, "prompts"),
            buffer_prompts,
        )

    @_in_python()
    def heads(
        self,
        lines: Iterable[str | Path | NDArray[np.uint8]],
        *,
        targets: Iterable[str] | None = None,
        heads: Sequence[str] = (),
        mode: CaptureMode = "forced",
        rank: int = 1,
        weights: WeightingName | None = None,
        **search: Unpack[DecodingOverrides],
    ) -> Iterator[HeadsRecord]:
        """Captures the attention heads on sentences and their translations.

        Maps are computed in float32; a model of another precision is opened in it once.

        Args:
            lines: source sentences, or images as for `classify`.
            targets: a target for each line, looked at instead of the model's translation.
            heads: which heads, such as "cross.last"; none means all.
            mode: "forced" or "live".
            rank: which of the translations, 1 the best.
            weights: kind of the maps' numbers; None: attention weights.
            **search: settings of this call's search.

        Returns:
            A record a line or sentence, as of `inspect_heads`, which has the details. A notebook
            shows it as the page of the heads.

        Raises:
            UsageError: if `heads` select nothing or a setting is impossible.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        from tformer_cli.inspect.jobs.heads import HeadInspector

        _check_search("heads", search)
        settings: dict[str, Any] = {"n_best": rank, **search}
        with self._lock:
            opened = self._opened_for_inspection()
            translator = self._translator(opened, settings)
            inspector = HeadInspector(
                replace(opened, search=translator), heads, mode=mode, rank=rank, weights=weights
            )
        pairs = inspector.pairs(_given(lines, opened.directory), targets)
        return self._records(inspector, pairs)

    def _records(
        self, inspector: HeadInspector, pairs: Iterator[tuple[str, str | None]]
    ) -> Iterator[HeadsRecord]:
        for index, (line, target) in enumerate(pairs):
            with self._lock, _in_python():
                record = inspector.inspect_line(index, line, target)
            yield record

    def _opened_for(self, verb: Verb) -> Opened:
        """The opened model, if it is of a kind that a verb takes."""
        if verb not in self._kind.verbs:
            raise self._other_task()
        return self.opened

    def _other_task(self) -> ArtifactError:
        what = COMMANDS[self._kind.name].partition(";")[0]
        path = self.opened.directory.path
        return ArtifactError(f"{as_named(str(path))}: {what}; call its {self._methods_in_words()}")

    def _methods_in_words(self) -> str:
        # Only pairs are scored by a method: labels and texts are what `tformer score` takes, too
        scores = self._kind.measured_by == "translations"
        verbs = (f"{verb}()" for verb in self._kind.verbs if verb != "score" or scores)
        return f"{', '.join(verbs)} or heads()"

    @property
    def _kind(self) -> Kind:
        return kind_of(self.opened.directory.config)

    def _opened_for_inspection(self) -> Opened:
        from tformer_cli.inspect.views.heads import VIEW

        if self._kind.name not in VIEW.tasks:
            raise self._other_task()
        if self._for_inspection is None:
            options: dict[str, Any] = {**self._options, "precision": "float32"}
            options["engine"] = "tformer"
            path = self.opened.directory.path
            self._for_inspection = open_model(path, inspected=VIEW.tasks, **options)
        return self._for_inspection

    def _translator(self, opened: Opened, search: DecodingOverrides | dict[str, Any]) -> Translator:
        """Makes the translator of one call, which has settings of its own."""
        if not search:
            return opened.translator
        config = overridden(opened.translator.config, self._options.get("tell"), **search)
        return opened.translator.with_config(config)
