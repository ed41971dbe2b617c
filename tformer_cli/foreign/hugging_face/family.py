"""A family of the library's models as one table: importing reads it forwards, exporting backwards.

A `Family` names settings and weights both ways. The gate for config.json (`keys`) and the settings
that an export can hold (`known`) follow from it. Where a weight is more than another name for ours,
as a transposed matrix, the module of its task folds it; see `families` for the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from tformer_cli.allow_list import ANY
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.assembly import NEVER, Reader, foreign_names, lacks_bias
from tformer_cli.foreign.foreign_model import number, read_json_file
from tformer_cli.foreign.formats.lazy_arrays import LazyArrays
from tformer_cli.foreign.formats.weight_files import read_weights_of
from tformer_cli.foreign.hugging_face.keys import CONFIG_ROWS
from tformer_cli.foreign.keys import USED, Keys, Rows, only
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig, Pooler
from tformer_cli.model.weight_shapes import parameter_shapes

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.model.embedding import PositionedEmbedding

Table = Mapping[str, Sequence[str]]
Task = Literal["encoder", "decoder", "translation", "t5", "vision"]
_KNOWN: Mapping[str, Container[Any]] = {
    **PLAIN_TRANSLATION,
    **dict.fromkeys(("d_model", "n_heads", "d_ff", "max_positions", "tied_embeddings"), ANY),
    # dropout changes training, and no output
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
    # these belong to kinds of positions that a table names or refuses
    **dict.fromkeys(("rotary_base", "relative_buckets", "relative_distance"), ANY),
    # numbers that differ from layer to layer are refused with a message of their own
    **dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"), ANY),
    "norm": ("post",),
    "bias": (True,),
    "output_bias": (False,),
    "final_norm": ("pre-norm",),
    "embedding_norm": (False,),
    "scale_embeddings": (False,),
    "source_vocab_size": (0,),
    "source_eos": (True,),
}
"""Settings that exports can hold where their family's table does not say otherwise."""


@dataclass(frozen=True)
class Setting:
    """A setting by tformer's name and by the library's."""

    ours: str
    theirs: str
    default: Any = None
    """The library's, where config.json lacks the key; None: config.json must have it."""
    values: Mapping[Any, Any] | None = None
    """tformer's value of each of the library's; None: the same numbers."""

    def read(self, file: Path, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if self.values is not None:
            return self.values[settings.get(self.theirs, self.default)]
        if isinstance(self.default, float):
            return settings.get(self.theirs, self.default)
        if self.default is not None and settings.get(self.theirs) is None:
            return self.default
        return number(file, settings, self.theirs)

    def write(self, value: Any) -> Any:  # noqa: ANN401
        names = [] if self.values is None else self.values.items()
        return next((theirs for theirs, ours in names if ours == value), value)


@dataclass(frozen=True, kw_only=True)
class Family:
    """The table of one `model_type`."""

    model_type: str
    task: Task
    """The module that folds what a name alone does not say."""
    title: str
    """Name for users."""
    classes: Mapping[str, str]
    """The library's class, by the head of the model; "": of models that write."""
    settings: tuple[Setting, ...]
    read_more: Callable[[Path, Mapping[str, Any]], Mapping[str, Any]] = lambda _, __: {}
    """Reads settings that are not one key each; `write_more` undoes it."""
    write_more: Callable[[ModelConfig], Mapping[str, Any]] = lambda _: {}
    fixed: Mapping[str, Any]
    """tformer's settings that all models of the family share."""
    also: Mapping[str, Container[Any]] = field(default_factory=dict)
    """Further values that an export can hold, since it folds them into the weights."""
    dropouts: Mapping[str, str] = field(default_factory=dict)
    """Dropouts by their keys in config.json, which exports write and imports ignore."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """What config.json says of all models of the family."""
    rows: Rows
    """Other keys of config.json; see `keys`."""
    modules: Table
    """The library's names of layers' modules; see `assembled`."""
    outer: Mapping[str, str]
    """Its names of the weights around the layers, by tformer's."""
    heads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The same of the weights of each head."""
    prefix: str = ""
    """Begins the names of the body's weights where there is a head."""
    unprefixed: tuple[str, ...] = ("lm_head.", "final_logits_bias")
    """Beginnings of the names of heads."""
    scales: Mapping[str, str] = field(default_factory=dict)
    """Names of vectors that the products of layers are multiplied by, by the layers' modules."""
    pooler: Pooler = "none"
    """Function of the layer before the labels."""
    gelu_head: bool = False
    """The head of tokens computes with gelu, whatever the layers do."""
    omitted: tuple[tuple[str, ...], str] = ((), "")
    """Beginnings of tensors of further heads, and a note that they are omitted."""
    counts_from_padding: bool = False
    """The first token's row in the table of positions is the one behind padding's id."""
    spare_rows: int = 0
    """Rows of the vocabulary that the tokenizer has no piece for."""
    transposed: bool = False
    """Matrices of layers are (in, out)."""
    zero_biases: bool = False
    """The classes always have biases; an export writes zeros where a model has none."""

    @property
    def keys(self) -> Keys:
        """The gate for config.json."""
        named = {
            one.theirs: USED if one.values is None else only(*one.values) for one in self.settings
        }
        return Keys("config.json", self.title, {**CONFIG_ROWS, **named, **self.rows})

    @property
    def known(self) -> Mapping[str, Container[Any]]:
        """Settings of models that the family's classes can hold."""
        read = {
            one.ours: ANY if one.values is None else frozenset(one.values.values())
            for one in self.settings
        }
        fixed = {name: (value,) for name, value in self.fixed.items()}
        return {**_KNOWN, "pooler": ("none", self.pooler), **fixed, **read, **self.also}

    def read(self, file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the settings of a model by tformer's names."""
        found: dict[str, Any] = dict(self.fixed)
        names: dict[str, str] = {}
        for one in self.settings:
            value = one.read(file, settings)
            if one.ours in names and found[one.ours] != value:
                raise ArtifactError(
                    f"{file}: encoder and decoder differ in {one.theirs.removeprefix('decoder_')}, "
                    "which is not supported; import another model"
                )
            names[one.ours], found[one.ours] = one.theirs, value
        return {**found, **self.read_more(file, settings)}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Returns what config.json says of a model, without its vocabulary and labels."""
        return {
            **self.written,
            **{one.theirs: one.write(getattr(config, one.ours)) for one in self.settings},
            **{theirs: getattr(config, ours) for theirs, ours in self.dropouts.items()},
            **self.write_more(config),
            "dtype": "float32",
        }

    def prefixed(self, weights: Mapping[str, Tensor], *, has_head: bool) -> dict[str, Tensor]:
        """Gives weights the prefix that the class of a model with a head looks for."""
        names = {n: f"{self.prefix}{n}" if has_head and self.has_prefix(n) else n for n in weights}
        return {names[n]: one.detach().clone().contiguous() for n, one in weights.items()}

    def has_prefix(self, name: str) -> bool:
        """Returns whether a weight is the body's, whose names begin with a prefix."""
        return not name.startswith(self.unprefixed)


@dataclass(kw_only=True)
class Parts:
    """An export before it is written."""

    settings: Mapping[str, Any]
    """What config.json says besides its class."""
    weights: Mapping[str, Tensor]
    """By the names of the table."""
    layout: Layout | None = None
    """The vocabulary; None: of images."""
    generation: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(kw_only=True)
class Source:
    """A directory of the library whose settings are checked; its weights are not read yet."""

    file: Path
    """Its config.json."""
    settings: dict[str, Any]
    family: Family
    reader: Reader
    """Its weights by the names of the table."""
    weight_files: list[Path]
    notes: list[str]

    @property
    def path(self) -> Path:
        return self.file.parent

    def shape(self) -> dict[str, Any]:
        return self.family.read(self.file, self.settings)

    def check_architecture(self, endings: tuple[str, ...], advice: str) -> None:
        """Refuses a model with a head whose weights have the names of another one's."""
        for name in self.settings.get("architectures") or ():
            if not str(name).endswith(endings):
                raise ArtifactError(f"{self.file}: {str(name)[:60]} is not supported; {advice}")


def open_source(path: Path, family: Family, settings: dict[str, Any] | None = None) -> Source:
    """Opens a directory whose config.json the family's table knows."""
    file = path / "config.json"
    settings = read_json_file(file) if settings is None else settings
    notes = family.keys.read(file, settings)
    arrays, weight_files = read_weights_of(path)

    def short(name: str) -> str:
        name = name.removeprefix(family.prefix)
        # BERT's first checkpoints have TensorFlow's names of norms
        for old, new in (("LayerNorm.gamma", "weight"), ("LayerNorm.beta", "bias")):
            if name.endswith(old):
                return f"{name.removesuffix(old)}LayerNorm.{new}"
        return name

    has_prefix = any(name.startswith(family.prefix) for name in arrays)

    def shown(name: str) -> str:
        return f"{family.prefix}{name}" if has_prefix and family.has_prefix(name) else name

    return Source(
        file=file,
        settings=settings,
        family=family,
        reader=Reader(renamed(arrays, short), str(path), shown),
        weight_files=weight_files,
        notes=notes,
    )


def renamed(arrays: LazyArrays, rename: Callable[[str], str]) -> LazyArrays:
    """Gives arrays other names; none is read yet."""
    return LazyArrays({rename(name): partial(arrays.__getitem__, name) for name in arrays})


def named_weights(
    family: Family, config: ModelConfig, ours: Mapping[str, Tensor], vocab_size: int, path: Path
) -> dict[str, Tensor]:
    """Gives the weights of layers and of their norms the family's names and shapes.

    Rows of queries, keys and values become three matrices where the library has three.
    """
    import torch

    found: dict[str, Tensor] = {}
    with_biases = replace(config, bias=True) if family.zero_biases else config
    for name, shape in parameter_shapes(with_biases, vocab_size).items():
        foreign = foreign_names(name, family.modules)
        weight = ours[name] if name in ours else torch.zeros(shape)
        if len(foreign) == 3:
            widths = [config.n_heads * config.head_width, config.key_width, config.key_width]
            found.update(zip(foreign, torch.split(weight, widths), strict=True))
        elif foreign:
            is_transposed = family.transposed and weight.ndim == 2
            found[foreign[0]] = weight.T if is_transposed else weight
        elif lacks_bias(name, family.modules) and bool(weight.any()):
            raise UsageError(
                f"{path}: {name} is not zero, but {family.title} of Hugging Face has no such bias; "
                "use it here"
            )
    return found


def position_rows(stack: PositionedEmbedding, config: ModelConfig) -> Tensor:
    """(P, D) the vectors of positions of a stack's input, learned, computed or imported."""
    import torch

    # None only where positions are no vectors, which tables refuse
    return cast("Tensor", stack.positions.rows(0, config.max_positions, torch.device("cpu")))


def check_no_biases(directory: ModelDirectory, family: Family, advice: str) -> None:
    """Refuses a model whose logits have biases besides those that ban tokens."""
    bias = directory.model.output_bias
    if bias is not None and bool(bias[bias != NEVER].any()):
        raise UsageError(
            f"{directory.path}: its logits have biases, which {family.classes['']} of Hugging Face "
            f"lacks; {advice}"
        )


def written_labels(labels: Iterable[str]) -> dict[str, Any]:
    """Returns what config.json says of the labels of a classifier."""
    numbered = dict(enumerate(labels))
    return {
        "id2label": {str(number): label for number, label in numbered.items()},
        "label2id": {label: number for number, label in numbered.items()},
    }
