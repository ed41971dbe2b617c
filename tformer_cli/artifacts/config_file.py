"""`config.json` of a model directory: the description of a model, read without torch."""

import json
import re
from collections.abc import Container, Mapping
from dataclasses import field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import open_regular, read_regular
from tformer_cli.model.config import Head, ModelConfig
from tformer_cli.search.config import TORCH_BATCH_TOKENS, DecodingConfig
from tformer_cli.settings import dataclass
from tformer_cli.structure import StructureError, structure
from tformer_cli.version import __version__
from tformer_cli.wording import did_you_mean, suggestions

PARTS = ("config.json", "tokenizer.json", "model.safetensors")
FOREIGN_FILES = {
    "model.bin": "CTranslate2",
    "*.npz": "Marian",
    "*.npz.yml": "Marian",
    "*.decoder.yml": "Marian",
    "dict.*.txt": "fairseq",
    "checkpoint*.pt": "fairseq",
    "*step_*.pt": "OpenNMT",
    "params.best": "Sockeye",
    "params.0*": "Sockeye",
    "*.ckpt": "JoeyNMT",
    "pytorch_model*.bin": "Hugging Face",
    "tf_model.h5": "Hugging Face",
    "generation_config.json": "Hugging Face",
    "*.gguf": "llama.cpp",
    "*.onnx": "ONNX",
    "*.pt": "PyTorch",
    "*.pth": "PyTorch",
    "*.bin": "PyTorch",
}
"""Files that identify the owner of a model, the most specific ones first."""
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
RUNS = "runs"
"""Folder of the runs of all documents, which is no owner on the hub."""
NOT_READ = (
    "`tformer help import` names the models of other tools that can be imported; name one of them, "
    "or a tformer model directory"
)
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
TOKENIZER_FILES = (
    "name a directory that has the model's settings and weights, too, or train one with it "
    "(tokenizer.path in a recipe)"
)
MOST_LOOKED_AT, MOST_NAMED = 1000, 4


def not_a_model(path: Path, config: Mapping[str, Any] | None = None) -> ArtifactError:
    """Describes a path that is not a tformer model directory."""
    try:
        return ArtifactError(f"{path}: {_problem(path, config)}")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return ArtifactError(f"{path}: cannot be read ({reason}); name a model directory")


def _problem(path: Path, config: Mapping[str, Any] | None) -> str:
    if not path.exists():
        return _missing(path)
    if not path.is_dir():
        return _file(path)
    # From the surest sign to the weakest: a foreign config.json, foreign files, our own files
    if config is not None and {"model_type", "architectures"} & config.keys():
        kind = config.get("model_type")
        named = (
            f" ({kind})" if isinstance(kind, str) and kind.replace("-", "_").isidentifier() else ""
        )
        return f"is a Hugging Face model{named}; {NOT_READ}"
    owner = _owner(path)
    if owner:
        return f"is a model of {owner}; {NOT_READ}"
    if config is not None:
        return "its config.json has no format_version; name a tformer model directory"
    # A checkpoint may have been named, which holds weights and no settings of a model
    run = path.parent.parent if path.parent.name == "checkpoints" else path
    if (run / "recipe.toml").is_file() and not _is_model(run):
        return (
            "is a run without a model yet; resume it until its first validation "
            f"(`tformer train RECIPE -o {run}`)"
        )
    # A checkpoint or a file's folder inside a run was named: the run is meant
    above = next((parent for parent in path.resolve().parents if _is_model(parent)), None)
    if above is not None:
        return f"is a part of a model or run; name its directory {above}"
    # A folder of models, such as runs/ or a study's: a few of their names are the best advice
    inner = chain(path.glob("*"), path.glob("*/*"))
    models = [own for own in islice(inner, MOST_LOOKED_AT) if _is_model(own)]
    if models:
        shown = ", ".join(map(str, sorted(models)[:MOST_NAMED]))
        more = f" and {len(models) - MOST_NAMED} more" if len(models) > MOST_NAMED else ""
        return f"is not a model but holds some; name one of them: {shown}{more}"
    if any((path / name).is_file() for name in TOKENIZERS):
        return f"holds a tokenizer without a model; {TOKENIZER_FILES}"
    if any(path.glob("*.safetensors")):
        return "holds weights without config.json, which describes their model; put it next to them"
    return "config.json is missing; name a tformer model directory"


def _missing(path: Path) -> str:
    text = str(path)
    if any(letter.isspace() for letter in text) and not path.parent.name:  # a text, not a path
        return "no such directory; MODEL comes first, then the text"
    if path.parent.is_dir():
        beside = [inner.name for inner in islice(path.parent.iterdir(), MOST_LOOKED_AT)]
        near = [
            str(path.parent / name)
            for name in suggestions(path.name, sorted(beside))
            if _is_model(path.parent / name)
        ]
        if near:
            return f"no such directory; {did_you_mean(near)}"
    if path.parent.name == RUNS:
        return "no such directory; train it first: `tformer quickstart` makes runs/quickstart"
    if not path.parent.is_dir() and HUB_NAME.fullmatch(text):
        return (
            "no such directory; a model of the Hugging Face hub becomes one by "
            f"`tformer import {text} -o DIR`"
        )
    return "no such directory; name a model directory, or a model that `tformer models` lists"


def _file(path: Path) -> str:
    if path.name in PARTS and all((path.parent / part).is_file() for part in PARTS):
        return f"is a file of a model; name its directory {path.parent}"
    if path.name in TOKENIZERS:
        return f"is a tokenizer without a model; {TOKENIZER_FILES}"
    if path.name == "config.json":
        return "holds only a model's settings; put its weights next to it, and name the directory"
    if path.suffix == ".safetensors":
        return (
            "holds only weights; put their model's config.json next to them, and name the directory"
        )
    owner = _owner_of(path)
    if owner:
        return f"is a model of {owner}; {NOT_READ}"
    return "is a file; name a model directory"


def _owner(directory: Path) -> str:
    """Owner of a model by the files in its directory; empty: unknown."""
    files = list(islice(directory.iterdir(), MOST_LOOKED_AT))
    for pattern, owner in FOREIGN_FILES.items():
        if any(file.match(pattern) for file in files):
            return owner
    return ""


def _owner_of(file: Path) -> str:
    """Owner of a single file, by its name or by the files next to it."""
    owner = next((whose for glob, whose in FOREIGN_FILES.items() if file.match(glob)), "")
    return _owner(file.parent) if owner == "PyTorch" else owner  # several tools use .pt and .bin


def _is_model(path: Path) -> bool:
    try:
        return all((path / part).is_file() for part in PARTS)
    except OSError:
        return False


FORMAT_VERSIONS = {"float32": 1, "int8": 2}
"""Version of the layout, by the type of the weights; a directory with a higher one than the largest
of these is refused, so that a tformer without int8 reports a version and not a damaged file."""
WeightType = Literal["float32", "int8"]
TaskKind = Literal["translate", "classify", "tag", "language-model", "masked", "embed", "image"]
"""Kinds of models: `[task] kind` of a recipe."""
Verb = Literal["translate", "classify", "tag", "generate", "fill", "embed", "score"]
"""Commands that take lines, each for the kinds of models whose `kinds` modules name it."""
Settings = Mapping[str, Mapping[str, Any]]


class TaskRow(NamedTuple):
    """Facts of a kind that need no module of `kinds`, so that no message or recipe names a kind."""

    singular: str
    """Name of such a model, with its article."""
    several: str
    use: str
    """Message for a command that needs another kind of model."""
    head: Head | None = None
    """Head of its encoder; None: it has a decoder."""
    reads: Literal["pairs", "texts", "images"] = "pairs"
    """Contents of its corpora; images come with labels."""
    metrics: tuple[str, ...] = ()
    """Scores that validation may be judged by, the default first; none: only imports make it."""
    has_labels: bool = False
    """True if it predicts one of the labels that `config.json` lists."""
    at_places: bool = False
    """True if it predicts something at some tokens of a text, and so can be seen there."""
    predicts: bool = True
    """False for an encoder that only turns its input into vectors."""
    needed: tuple[tuple[str, str], ...] = ()
    """Keys of a recipe that must not be 0 or missing, each with a message."""
    has_distillation: bool = False
    """True if a teacher can write training targets for a student."""
    defaults: Settings = MappingProxyType({})
    """Keys of a recipe where they differ from its tables' defaults; a preset keeps them."""


_ENCODER = {"n_decoder_layers": 0}
_EXACT = {"label_smoothing": 0.0}  # a perplexity would count the smoothing, too
TASKS: Mapping[TaskKind, TaskRow] = MappingProxyType(
    {
        "translate": TaskRow(
            "a translation model",
            "translation models",
            "is a translation model; use `tformer translate`",
            metrics=("bleu", "chrf", "loss", "perplexity"),
            has_distillation=True,
        ),
        "classify": TaskRow(
            "a classifier",
            "classifiers",
            "is a classifier, which labels texts; use `tformer classify`",
            head="labels",
            metrics=("accuracy", "macro_f1", "loss"),
            has_labels=True,
            defaults={"model": _ENCODER},
        ),
        "tag": TaskRow(
            "a tagger",
            "taggers",
            "is a tagger, which labels each word of a text; use `tformer tag`",
            head="tags",
            metrics=("accuracy", "macro_f1", "loss"),
            has_labels=True,
            at_places=True,
            defaults={"model": {**_ENCODER, "head": "tags"}},
        ),
        "language-model": TaskRow(
            "a language model",
            "language models",
            "is a language model, which continues texts; use `tformer generate`, or "
            "`tformer evaluate --text`",
            reads="texts",
            metrics=("loss", "perplexity", "bits_per_byte"),
            defaults={
                "model": {"n_encoder_layers": 0},
                "training": _EXACT,
                "decoding": {"sampling": True},
            },
        ),
        "image": TaskRow(
            "a classifier of images",
            "classifiers of images",
            "is a classifier of images; use `tformer classify`",
            head="labels",
            reads="images",
            metrics=("accuracy", "macro_f1", "loss"),
            has_labels=True,
            needed=(
                (
                    "model.patch_size",
                    'task.kind = "image" needs one, the pixels of a side of patches, such as 4',
                ),
            ),
            defaults={"model": _ENCODER},
        ),
        "masked": TaskRow(
            "a masked language model",
            "masked language models",
            "is a masked language model, which fills gaps in texts; use `tformer fill`, or "
            "`tformer evaluate --text`",
            head="tokens",
            at_places=True,
            reads="texts",
            metrics=("loss", "perplexity", "accuracy"),
            needed=(
                (
                    "training.tokens_per_batch",
                    'must be above 0 for task.kind = "masked"; name a number',
                ),
            ),
            defaults={"model": {**_ENCODER, "head": "tokens"}, "training": _EXACT},
        ),
        "embed": TaskRow(
            "an encoder",
            "encoders",
            "is an encoder, which turns texts into vectors; use `tformer embed`",
            head="none",
            predicts=False,
        ),
    }
)
DEFAULT_KIND: TaskKind = "translate"
"""The kind of a recipe that names none, and of models that most commands are for."""
TRANSLATORS: tuple[TaskKind, ...] = (DEFAULT_KIND,)
COMMANDS: Mapping[TaskKind, str] = {kind: row.use for kind, row in TASKS.items()}
MODELS: Mapping[TaskKind, str] = {kind: row.several for kind, row in TASKS.items()}
ONE_MODEL: Mapping[TaskKind, str] = {kind: row.singular for kind, row in TASKS.items()}
HEADS: Mapping[Head, TaskKind] = {
    row.head: kind for kind, row in TASKS.items() if row.head and row.reads != "images"
}
"""Kinds of encoders of texts by their heads."""
CONFIG, TOKENIZER, WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
SHORTLIST, FREQUENCIES, DOUBT = "shortlist.safetensors", "frequencies.json", "doubt.json"
LENS = "lens.safetensors"
PROBE = "heads-probe.jsonl"
LARGEST_CONFIG = 1 << 20


@dataclass(frozen=True, kw_only=True)
class AlignmentInfo:
    """Heads that align words, and their convention.

    `tformer inspect-align --save` stores them, and an import whose files name them.
    """

    heads: str
    """Cross-attention heads by the grammar of ``--heads``; of several the mean."""
    convention: Literal["naive", "shift"]
    """Convention: the row of a target token predicts it, or has read it."""


@dataclass(frozen=True, kw_only=True)
class ImportOrigin:
    """Foreign model that a model directory was made of."""

    kind: str
    """Kind of the model, such as "Bergamot (Firefox)"."""
    source: str
    """Name of its directory, file or repository."""
    files: dict[str, str]
    ids: tuple[tuple[int, int], ...]
    """Foreign ids of the target's tokens in the order of ours, as runs: first id and length; the
    first id -1: one token that the foreign model does not have."""


@dataclass(frozen=True, kw_only=True)
class StartOrigin:
    """Model whose weights a training started from."""

    model: str
    """Its directory or name, as the recipe gave it."""
    weights_hash: str


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Facts about a model, without its weights."""

    source_language: str = ""
    target_language: str = ""
    step: int = 0
    """Optimizer steps the weights were trained for (the last one's, of an average)."""
    scores: Mapping[str, float] = field(default_factory=dict)
    tformer_version: str = field(default_factory=lambda: __version__)  # which a file must name
    alignment: AlignmentInfo | None = None
    origin: ImportOrigin | None = None
    start: StartOrigin | None = None
    labels: tuple[str, ...] = ()
    several_sentences: float | None = None
    """Share of the source lines in training that hold several sentences; None: not known."""


@dataclass(frozen=True, kw_only=True)
class ConfigFile(ModelInfo):
    """Content of `config.json`."""

    format_version: int
    tformer_version: str
    model: ModelConfig
    vocab_size: int
    decoding: DecodingConfig
    weight_type: WeightType = "float32"

    @property
    def task(self) -> TaskKind:
        return task_kind(self.model)


def task_kind(model: ModelConfig) -> TaskKind:
    if model.is_decoder_only:
        return "language-model"
    if model.reads_images and model.head == "labels":
        return "image"
    return HEADS[model.head] if model.is_encoder_only else "translate"


def describe_layers(model: ModelConfig) -> str:
    """Describes the kind and the number of layers of a model."""
    n_encoder, n_decoder = model.n_encoder_layers, model.n_decoder_layers
    if model.is_decoder_only:
        return f"language model, {n_decoder} decoder layers"
    if model.is_encoder_only:
        _, kind = ONE_MODEL[task_kind(model)].split(" ", 1)
        return f"{kind}, {n_encoder} encoder layers"
    return f"{n_encoder} encoder and {n_decoder} decoder layers"


def check_task(path: Path, model: ModelConfig, tasks: Container[TaskKind]) -> None:
    kind = task_kind(model)
    if kind not in tasks:
        *others, last = (name for task, name in MODELS.items() if task in tasks)
        taken = f"{', '.join(others)} or {last}" if others else last
        raise ArtifactError(f"{path}: {COMMANDS[kind]} (this takes {taken})")


def check_model(path: Path, tasks: Container[TaskKind]) -> None:
    """Refuses the directory of a model of another task than a command is for."""
    check_task(path, read_config(path).model, tasks)


def may_be_ours(path: Path) -> bool:
    """Returns whether a directory may be a model directory of tformer's."""
    try:
        with open_regular(path / CONFIG) as stream:
            start = stream.read(4096)
    except OSError:
        return False
    return b'"format_version"' in start


def read_config(path: Path) -> ConfigFile:
    file = path / CONFIG
    values = read_json(path, file)
    version = values.get("format_version")
    if not isinstance(version, int) or version < 1:  # a config.json of another tool
        raise not_a_model(path, values)
    newest = max(FORMAT_VERSIONS.values())
    if version > newest:
        raise ArtifactError(
            f"{file}: has format {version}, newer than {newest} that this version reads; "
            "update tformer"
        )
    try:
        record = _check_record(structure(ConfigFile, values))
    except StructureError as error:
        raise ArtifactError(
            f"{file}: {error}; the file is damaged, or not from a tformer model"
        ) from None
    # Earlier versions stored their default, as a number: nearly always nobody chose it
    if record.decoding.batch_tokens == TORCH_BATCH_TOKENS:
        return replace(record, decoding=replace(record.decoding, batch_tokens=0))
    return record


def _check_record(record: ConfigFile) -> ConfigFile:
    n_labels, labels = record.model.n_labels, record.labels
    if TASKS[record.task].has_labels and not n_labels:
        raise StructureError("model.n_labels", "must be at least 1, but is 0")
    for name in ("image_size", "image_mean", "image_std") if record.model.reads_images else ():
        if not getattr(record.model, name):
            raise StructureError(f"model.{name}", "must not be empty")
    if len(labels) != n_labels or len(set(labels)) != n_labels:  # two of one name look alike
        raise StructureError("labels", f"must be {n_labels} different names; found {len(labels)}")
    return record


def read_json(path: Path, file: Path) -> dict[str, Any]:
    try:
        if not file.is_file():
            raise not_a_model(path)
    except OSError:  # a name too long, a directory that may not be entered
        raise not_a_model(path) from None
    try:
        values = json.loads(read_regular(file, LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: is not readable JSON ({reason}); restore the file") from None
    if not isinstance(values, dict):
        raise ArtifactError(
            f"{file}: is not a JSON object; name a tformer model directory, or restore "
            "the damaged file"
        )
    return values
