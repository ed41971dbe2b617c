"""A family of the library's models as one table: importing reads it forwards, exporting backwards.

A `Family` names settings and weights both ways. The gate for config.json (`keys`) and the settings
that an export can hold (`known`) follow from it. Where a weight is more than another name for ours,
as a transposed matrix, the module of its task folds it; see `families` for the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.foreign_model import (
    BANNED_BIAS,
    HELD_BY_EXPORTS,
    ForeignModel,
    Reader,
    Weight,
    build_weights,
    foreign_names,
    lacks_bias,
)
from tformer_cli.foreign.formats.mapped_file import rename_arrays
from tformer_cli.foreign.formats.weight_files import read_weights_of
from tformer_cli.foreign.hugging_face.keys import CONFIG_ROWS, TOKENIZER
from tformer_cli.foreign.hugging_face.same_tokens import check_tokens
from tformer_cli.foreign.keys import (
    USED,
    KeyRows,
    Keys,
    Setting,
    only,
    read_json_file,
    read_shape,
)
from tformer_cli.model.weight_shapes import parameter_shapes
from tformer_cli.search.config import DecodingConfig
from tformer_cli.settings import ANY

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.mapped_file import Array
    from tformer_cli.foreign.hugging_face.layout import Layout
    from tformer_cli.foreign.hugging_face.pipelines import Written
    from tformer_cli.model.config import ModelConfig, Pooler
    from tformer_cli.model.embedding import PositionedEmbedding
    from tformer_cli.text.tokenizer import Tokenizer

Table = Mapping[str, Sequence[str]]
Task = Literal["encoder", "decoder", "translation", "t5", "vision"]
# settings that exports can hold where their family's table does not say otherwise
_KNOWN: Mapping[str, Container[Any]] = {
    **HELD_BY_EXPORTS,
    "tied_embeddings": ANY,
    "norm": ("post",),
    "bias": (True,),
    "output_bias": (False,),
    "final_norm": ("pre-norm",),
    "embedding_norm": (False,),
    "scale_embeddings": (False,),
    "source_vocab_size": (0,),
    "source_eos": (True,),
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """The table of one `model_type`."""

    model_type: str
    task: Task  # the module that folds what a name alone does not say
    title: str
    # the library's class, by the head of the model; "": of models that write
    classes: Mapping[str, str]
    settings: tuple[Setting, ...]
    # reads settings that are not one key each; `write_more` undoes it
    read_more: Callable[[Path, Mapping[str, Any]], Mapping[str, Any]] = lambda _, __: {}
    write_more: Callable[[ModelConfig], Mapping[str, Any]] = lambda _: {}
    fixed: Mapping[str, Any]  # tformer's settings that all models of the family share
    # further values that an export can hold, since it folds them into the weights
    also: Mapping[str, Container[Any]] = field(default_factory=dict)
    # dropouts by their keys in config.json, which exports write and imports ignore
    dropouts: Mapping[str, str] = field(default_factory=dict)
    # what config.json says of all models of the family
    written: Mapping[str, Any] = field(default_factory=dict)
    rows: KeyRows  # other keys of config.json; see `keys`
    modules: Table  # the library's names of layers' modules; see `build_weights`
    # the same where its classes have other names than its files, which adapters have
    runtime_modules: Table = field(default_factory=dict)
    outer: Mapping[str, str]  # its names of the weights around the layers, by tformer's
    # the same of the weights of each head
    heads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    prefix: str = ""  # begins the names of the body's weights where there is a head
    # beginnings of the names of heads
    unprefixed: tuple[str, ...] = ("lm_head.", "final_logits_bias")
    # names of vectors that the products of layers are multiplied by, by the layers' modules
    scales: Mapping[str, str] = field(default_factory=dict)
    pooler: Pooler = "none"  # function of the layer before the labels
    gelu_head: bool = False  # the head of tokens computes with gelu, whatever the layers do
    # beginnings of tensors of further heads, and a note that they are omitted
    omitted: tuple[tuple[str, ...], str] = ((), "")
    ignored: str = ""  # pattern of the names of tensors that decide nothing
    # the first token's row in the table of positions follows padding's id
    counts_from_padding: bool = False
    tied: bool = True  # the output has the embedding's rows where config.json does not say it
    spare_rows: int = 0  # rows of the vocabulary that the tokenizer has no piece for
    transposed: bool = False  # matrices of layers are (in, out)
    # part of the names of products whose rows are a query, a key and a value of each head
    by_heads: str = ""
    # the classes always have biases; an export writes zeros where a model has none
    zero_biases: bool = False

    @property
    def keys(self) -> Keys:
        named = {
            row.theirs: USED if row.values is None else only(*row.values) for row in self.settings
        }
        return Keys("config.json", self.title, {**CONFIG_ROWS, **named, **self.rows})

    @property
    def known(self) -> Mapping[str, Container[Any]]:
        """Settings of models that the family's classes can hold."""
        read = {
            row.ours: ANY if row.values is None else tuple(dict.fromkeys(row.values.values()))
            for row in self.settings
        }
        fixed = {name: (value,) for name, value in self.fixed.items()}
        return {**_KNOWN, "pooler": ("none", self.pooler), **fixed, **read, **self.also}

    def read(self, file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        shape = read_shape(file, settings, self.settings)
        return {**self.fixed, **shape, **self.read_more(file, settings)}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Returns what config.json says of a model, without its vocabulary and labels."""
        return {
            **self.written,
            **{row.theirs: row.write(getattr(config, row.ours)) for row in self.settings},
            **{theirs: getattr(config, ours) for theirs, ours in self.dropouts.items()},
            **self.write_more(config),
            "dtype": "float32",
        }

    def add_prefix(self, weights: Mapping[str, Tensor], *, has_head: bool) -> dict[str, Tensor]:
        """Gives weights the prefix that the class of a model with a head looks for."""
        names = {n: f"{self.prefix}{n}" if has_head and self.has_prefix(n) else n for n in weights}
        return {names[n]: weight.detach().clone().contiguous() for n, weight in weights.items()}

    def has_prefix(self, name: str) -> bool:
        """Returns whether a weight is the body's, whose names begin with a prefix."""
        return not name.startswith(self.unprefixed)


@dataclass(kw_only=True)
class Parts:
    """An export before it is written."""

    settings: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    layout: Layout | None = None  # the vocabulary; None: of images
    generation: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    pipeline: Written | None = None  # modules of sentence-transformers that stand on an encoder


@dataclass(kw_only=True)
class Source:
    """A directory of the library whose settings are checked; its weights are not read yet."""

    file: Path
    settings: dict[str, Any]
    family: Family
    reader: Reader
    weight_files: list[Path]
    notes: list[str]

    @property
    def path(self) -> Path:
        return self.file.parent

    def shape(self) -> dict[str, Any]:
        return self.family.read(self.file, self.settings)

    @property
    def is_tied(self) -> bool:
        return bool(self.settings.get("tie_word_embeddings", self.family.tied))

    def read_embedding(self, names: Sequence[str], output: str) -> Array:
        """Reads the rows of the vocabulary, which a tied model may store as those of the output."""
        if self.is_tied and output in self.reader and not any(n in self.reader for n in names):
            names = [output]
        return self.reader.take_first(names)

    def read_output(self, name: str, embedding: Array) -> Array:
        """Reads the rows of the output, which are the embedding's if the file has no others."""
        if name not in self.reader:
            if self.is_tied:
                return embedding
            raise ArtifactError(
                f"{self.path}: the output has rows of its own (tie_word_embeddings = false), but "
                f"the weights have no {name}; download them again, or set it to true in "
                "config.json if the output is the embedding"
            )
        rows = self.reader.take(name)
        if self.is_tied and not np.array_equal(rows, embedding):
            self.notes.append(
                f"tie_word_embeddings = true, but {name} has rows of its own, which are read; "
                "version 4 of the library does not read them"
            )
        return rows

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

    # messages name tensors as the file does
    has_prefix = any(name.startswith(family.prefix) for name in arrays)

    def full_name(name: str) -> str:
        return f"{family.prefix}{name}" if has_prefix and family.has_prefix(name) else name

    return Source(
        file=file,
        settings=settings,
        family=family,
        reader=Reader(rename_arrays(arrays, short), str(path), full_name),
        weight_files=weight_files,
        notes=notes,
    )


def finish(
    source: Source,
    config: ModelConfig,
    outer: Mapping[str, Weight],
    *,
    ids: tuple[int, ...],
    tokenizer: Tokenizer,
    files: Iterable[Path] = (),
    notes: Iterable[str] = (),
    decoding: DecodingConfig | None = None,
    kind: str = "",
    lowercase: bool = False,
    **about: Any,  # noqa: ANN401
) -> ForeignModel:
    """Reads the layers by the family's table, and refuses tensors that are left over.

    `outer` are the weights around the layers, `about` further fields of the model; texts become
    `lowercase` before the tokenizer's own file reads them.
    """
    file, writes = source.path / TOKENIZER, config.n_decoder_layers > 0
    of_tokens = check_tokens(file, tokenizer, ids, lowercase=lowercase, writes=writes)
    family, reader = source.family, source.reader
    # y = γ·(W·x + b) is one product here, with the rows of γ·W and γ·b (Touvron et al. 2021)
    scales = {
        name: scale.format(n=n)
        for module, scale in family.scales.items()
        for n in range(config.n_encoder_layers)
        for part in ("weight", "bias")
        for name in foreign_names(f"encoder.layers.{n}.{module}.{part}", family.modules)
    }

    def read(name: str) -> Array:
        array = reader.take(name)
        if family.transposed and array.ndim == 2:
            array = array.T
        if scales.get(name, "") in reader:
            factors = reader.take(scales[name])
            array = array * (factors[:, None] if array.ndim == 2 else factors)
        if family.by_heads and family.by_heads in name:
            array = regroup_rows(array, config.n_heads, 3)
        return array

    weights = build_weights(config, len(ids), family.modules, read, outer, str(source.file))
    _check_all_taken(source)
    return ForeignModel(
        kind=kind or f"Hugging Face {family.title}",
        config=config,
        weights=weights,
        tokenizer=tokenizer,
        decoding=decoding or DecodingConfig(),
        files=(source.file, *source.weight_files, *files),
        ids=ids,
        spare_rows=family.spare_rows,
        notes=(*source.notes, *notes, *of_tokens),
        **about,
    )


def _check_all_taken(source: Source) -> None:
    """Refuses leftover tensors, except those that the family's table omits or ignores."""
    family, reader = source.family, source.reader
    beginnings, note = family.omitted
    left = [n for n in reader.arrays if n.startswith(beginnings) and not reader.is_taken(n)]
    if left:
        source.notes.append(note)
    ignored = re.compile(family.ignored)
    reader.ignore([*left, *(name for name in reader.arrays if ignored.fullmatch(name))])
    reader.check_all_taken()


def named_weights(
    family: Family, config: ModelConfig, ours: Mapping[str, Tensor], vocab_size: int, path: Path
) -> dict[str, Tensor]:
    """Gives the weights of layers and of their norms the family's names and shapes.

    Rows of queries, keys and values become three matrices where the library has three.
    """
    import torch

    weights: dict[str, Tensor] = {
        scale.format(n=n): torch.ones(config.d_model)
        for scale in family.scales.values()
        for n in range(config.n_encoder_layers)
    }
    with_biases = replace(config, bias=True) if family.zero_biases else config
    for name, shape in parameter_shapes(with_biases, vocab_size).items():
        foreign = foreign_names(name, family.modules)
        weight = ours[name] if name in ours else torch.zeros(shape)
        if len(foreign) == 3:
            widths = [config.n_heads * config.head_width, config.key_width, config.key_width]
            weights.update(zip(foreign, torch.split(weight, widths), strict=True))
        elif foreign:
            if family.by_heads and family.by_heads in foreign[0]:
                weight = regroup_rows(weight, 3, config.n_heads)
            is_transposed = family.transposed and weight.ndim == 2
            weights[foreign[0]] = weight.T if is_transposed else weight
        elif lacks_bias(name, family.modules) and bool(weight.any()):
            raise UsageError(
                f"{path}: {name} is not zero, but {family.title} of Hugging Face has no such bias; "
                "use it here"
            )
    return weights


def regroup_rows(rows: Any, outer: int, inner: int) -> Any:  # noqa: ANN401 - of numpy or torch
    """Exchanges the first two axes of rows (outer·inner·E, …)."""
    return rows.reshape(outer, inner, -1).swapaxes(0, 1).reshape(rows.shape)


def position_rows(stack: PositionedEmbedding, config: ModelConfig) -> Tensor:
    """(P, D) the vectors of positions of a stack's input, learned, computed or imported."""
    import torch

    # None only where positions are not vectors, which tables refuse
    return cast("Tensor", stack.positions.rows(0, config.max_positions, torch.device("cpu")))


def check_no_biases(directory: ModelDirectory, family: Family, advice: str) -> None:
    """Refuses a model whose logits have biases other than those that ban tokens."""
    bias = directory.model.output_bias
    if bias is not None and bool(bias[bias != BANNED_BIAS].any()):
        raise UsageError(
            f"{directory.path}: its logits have biases, which {family.classes['']} of Hugging Face "
            f"lacks; {advice}"
        )


def written_labels(labels: Iterable[str]) -> dict[str, Any]:
    numbered = dict(enumerate(labels))
    return {
        "id2label": {str(number): label for number, label in numbered.items()},
        "label2id": {label: number for number, label in numbered.items()},
    }


def label_names(
    file: Path, settings: Mapping[str, Any], n_labels: int, notes: list[str]
) -> tuple[str, ...]:
    """Reads the names of labels; numbered ones where a config.json names others, or not all.

    Of names that are alike, as ImageNet has two, the later ones get their number.
    """
    if n_labels < 2:
        raise ArtifactError(
            f"{file}: has one output, a number and no label; import a model of two labels or more"
        )
    named = settings.get("id2label")
    if by_timm := settings.get(
        "label_names", (settings.get("pretrained_cfg") or {}).get("label_names")
    ):
        is_list = isinstance(by_timm, list)
        named = {str(n): name for n, name in enumerate(by_timm)} if is_list else by_timm
    named = named if isinstance(named, dict) else {}
    names = [str(named.get(str(place), "")).strip() for place in range(n_labels)]
    if len(named) == n_labels and all(names):
        seen: set[str] = set()
        for place, name in enumerate(names):
            names[place] = name if name not in seen else f"{name} ({place})"
            seen.add(names[place])
        if len(seen) == n_labels:
            return tuple(names)
    notes.append(f"config.json does not name its {n_labels} labels; they are LABEL_0 and so on")
    return tuple(f"LABEL_{place}" for place in range(n_labels))
