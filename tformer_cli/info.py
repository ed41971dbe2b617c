"""Facts about a model from its directory; without torch, so that they appear at once."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from tformer_cli.artifacts.config_file import (
    DOUBT,
    SHORTLIST,
    TOKENIZER,
    WEIGHTS,
    ConfigFile,
    read_config,
)
from tformer_cli.artifacts.doubt_file import Calibration, read_calibration
from tformer_cli.artifacts.shortlist_file import read_shortlist
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.recipe import Recipe, load_recipe
from tformer_cli.search.engine import Shortlist
from tformer_cli.show.curves import METRICS_FILE, read_run
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.wording import as_named

Part = TypeVar("Part")
SCHEMA = "tformer.info/1"
RECIPE = "recipe.toml"
# Types of numbers by their names in safetensors files.
BITS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I8": "int8"}


@dataclass(frozen=True, kw_only=True)
class ModelDetails:
    """Facts about a model, without its weights."""

    path: Path
    config: ConfigFile
    n_parameters: int
    algorithm: str
    """Algorithm of its tokenizer."""
    languages: tuple[str, ...]
    """Codes of the languages that it has tokens for."""
    shortlist: Shortlist | None
    doubt: Calibration | None
    weight_type: str
    """Type of most of its stored weights."""
    n_model_bytes: int
    """Size of the files that a model needs; the directory may hold others."""
    n_bytes: int
    recipe: Recipe | None
    """The recipe of the run; None if missing or unreadable."""
    progress: Mapping[str, float] | None
    """The last report of training: step, epoch, tokens and seconds, if any."""
    problems: tuple[str, ...]
    """Problems with unreadable parts, in one line each."""

    @property
    def named(self) -> str:
        """The path that the user named: this directory, or the foreign model imported into it."""
        return as_named(str(self.path))

    @property
    def targets_per_source(self) -> float:
        """Mean number of targets of its shortlist for a source token; 0 without a shortlist."""
        if self.shortlist is None:
            return 0.0
        return len(self.shortlist.targets) / (len(self.shortlist.offsets) - 1)

    def record(self) -> dict[str, Any]:
        recipe, config, shortlist = self.recipe, self.config, self.shortlist
        origin = config.origin
        training = None
        if recipe is not None:
            training = {
                "optimizer": recipe.training.optimizer,
                "learning_rate": recipe.training.learning_rate,
                "precision": recipe.training.precision,
                "seed": recipe.training.seed,
                "data": [corpus_name(corpus) for corpus in recipe.data.train],
                "origin": recipe.data.origin,
            }
        return {
            "schema": SCHEMA,
            "path": str(self.path),
            "named": self.named,
            "source_language": config.source_language,
            "target_language": config.target_language,
            "languages": list(self.languages),
            "labels": list(config.labels),
            "parameters": self.n_parameters,
            "model": asdict(config.model),
            "vocabulary": {"size": config.vocab_size, "algorithm": self.algorithm},
            "shortlist": shortlist
            and {
                "first": shortlist.first,
                "targets_per_source": self.targets_per_source,
            },
            "step": config.step,
            "scores": dict(config.scores),
            "last_report": None if self.progress is None else dict(self.progress),
            "training": training,
            "decoding": asdict(config.decoding),
            "imported_from": origin and {"kind": origin.kind, "source": origin.source},
            "started_from": config.start and config.start.model,
            "weight_type": self.weight_type,
            **(
                {}
                if self.doubt is None
                else {"doubt": {"lines": self.doubt.lines, **self.doubt.scores}}
            ),
            "bytes": {"model": self.n_model_bytes, "directory": self.n_bytes},
            "tformer_version": config.tformer_version,
        }


def model_details(path: Path) -> ModelDetails:
    path = resolve_model(path)
    config = read_config(path)
    tokenizer = read_tokenizer(path / TOKENIZER)
    weight_type, n_weight_bytes = _weights(path / WEIGHTS)
    # The bytes of a link lie elsewhere
    files = [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
    parts = [path / name for name in ("config.json", TOKENIZER, SHORTLIST)]
    n_other_bytes = sum(part.stat().st_size for part in parts if part.is_file())
    # The model is described even if files of its run are unreadable: it works without them
    problems: list[str] = []
    sizes = tokenizer.source.vocab_size, tokenizer.vocab_size
    recipe = _if_readable(path / RECIPE, lambda file: load_recipe(str(file)), problems)
    progress = _if_readable(path / METRICS_FILE, lambda _: _last_report(path), problems)
    shortlist = _if_readable(path / SHORTLIST, lambda file: read_shortlist(file, *sizes), problems)
    doubt = _if_readable(path / DOUBT, lambda _: read_calibration(path), problems)
    return ModelDetails(
        path=path,
        config=config,
        n_parameters=parameter_count(config.model, config.vocab_size),
        algorithm=tokenizer.algorithm,
        languages=tokenizer.language_codes,
        shortlist=shortlist,
        doubt=doubt,
        weight_type=weight_type,
        n_model_bytes=n_weight_bytes + n_other_bytes,
        n_bytes=sum(file.stat().st_size for file in files),
        recipe=recipe,
        progress=progress,
        problems=tuple(problems),
    )


def _if_readable(file: Path, read: Callable[[Path], Part], problems: list[str]) -> Part | None:
    """Reads a file if it is there; notes why, if it cannot be: it may be of a newer tformer."""
    try:
        return read(file) if file.is_file() else None
    except TformerError as error:
        problems.append(str(error))
        return None


def corpus_name(corpus: CorpusConfig) -> str:
    """Names a corpus by its source: files, a dataset, or the built-in corpus."""
    if corpus.built_in:
        unit = "sentences" if corpus.is_text else "pairs"
        pairs = f" of {corpus.pairs:,} {unit}" if corpus.built_in == "train" else ""
        return f"built-in corpus, {corpus.built_in}{pairs}"
    if corpus.ratings:
        return f"built-in ratings, {corpus.ratings}"
    if corpus.shapes:
        return f"built-in shapes, {corpus.shapes}"
    if corpus.algorithmic:
        return f"built-in {corpus.algorithmic}, {corpus.split}"
    if corpus.dataset:
        return " ".join(part for part in (corpus.dataset, corpus.dataset_config) if part)
    named = corpus.tsv or corpus.jsonl or corpus.text or corpus.images
    return named or f"{corpus.source}, {corpus.target}"


def _weights(path: Path) -> tuple[str, int]:
    """Reads the type of most weights from the header of a file, and its size in bytes."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ArtifactError(f"{path}: is missing; name a complete model directory")
    numbers: Counter[str] = Counter()
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                tensor = file.get_slice(name)
                numbers[tensor.get_dtype()] += prod(tensor.get_shape())
        n_bytes = path.stat().st_size
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(
            f"{path}: is damaged or cannot be read ({reason}); restore it"
        ) from None
    ((kind, _),) = numbers.most_common(1) or [("", 0)]
    return BITS.get(kind, kind), n_bytes


def _last_report(path: Path) -> dict[str, float] | None:
    reports = read_run(path).reports
    if not reports:
        return None
    return {
        key: reports[-1][key]
        for key in ("step", "epoch", "tokens", "seconds")
        if key in reports[-1]
    }
