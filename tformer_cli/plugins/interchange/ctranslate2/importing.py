"""CTranslate2's directories of Transformers that translate, and Argos Translate's packages.

W_Q, W_K and W_V lie in one matrix, as in tformer; those of the memory's keys and values in another.
Positions are a table in the file, or else tensor2tensor's from position 1. An Argos package is a
zip with one directory inside, or that directory: a model, a SentencePiece model and metadata.json.
Sources: CTranslate2 4.8, specs/transformer_spec.py, src/models and src/layers; Argos Translate 1.9,
argostranslate/package.py and translate.py.
"""

import errno
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.files.atomic import scratch_directory, scratch_errors
from tformer_cli.files.regular_file import open_regular
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    Integers,
    Reader,
    Weight,
    build_weights,
    output_bias,
    tensor2tensor_halves,
)
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays
from tformer_cli.foreign.keys import check_settings, read_json_file
from tformer_cli.foreign.readers import ConvertAs, ModelReader
from tformer_cli.model import methods
from tformer_cli.model.config import ModelConfig, TiedEmbeddings
from tformer_cli.plugins.interchange.ctranslate2.binary import (
    SCALE,
    CTranslate2File,
    is_ctranslate2,
    read_ctranslate2,
)
from tformer_cli.plugins.interchange.ctranslate2.settings import (
    ANEW,
    ANOTHER,
    POSITIONS,
    SIDES,
    Scalars,
    Vocabularies,
    read_config,
    read_settings,
    read_vocabularies,
    special_tokens,
)
from tformer_cli.plugins.interchange.marian.binary import FREE_BYTES, MOST_EXPANSION
from tformer_cli.search.config import DecodingConfig

_MODULES = {
    "self_attention.in_projection": ("self_attention/linear_0/{part}",),
    "self_attention.out_projection": ("self_attention/linear_1/{part}",),
    "self_attention_norm": ("self_attention/layer_norm/{gamma}",),
    "cross_attention.in_projection": ("attention/linear_0/{part}", "attention/linear_1/{part}"),
    "cross_attention.out_projection": ("attention/linear_2/{part}",),
    "cross_attention_norm": ("attention/layer_norm/{gamma}",),
    "feed_forward.inner": ("ffn/linear_0/{part}",),
    "feed_forward.outer": ("ffn/linear_1/{part}",),
    "feed_forward_norm": ("ffn/layer_norm/{gamma}",),
}
# foreign names of the modules of a layer and of the norms around the stacks
TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{
            ours: tuple(f"{{side}}/layer_{{n}}/{name}" for name in theirs)
            for ours, theirs in _MODULES.items()
        },
        "final_norm": ("{side}/layer_norm/{gamma}",),
        "input.norm": ("{side}/layernorm_embedding/{gamma}",),
    }
)
SPECS = ("TransformerSpec", "TransformerBase")
OLDEST_REVISION = 2  # before it, arrays had the names of OpenNMT-tf
INT16_SCALE = 1000.0  # of old files that do not store it
# defaults of the engine's `translate_batch`
DECODING = DecodingConfig(beam_size=2, length_normalization="average", length_penalty=1.0)
# arrays that decide nothing
_IGNORED = (
    "layernorm_embedding",  # repeats that its arrays exist
    *(
        f"{prefix}{name}"
        for prefix in ("", "encoder/", "decoder/")
        for name in (
            "alignment_layer",  # of the encoder
            "alignment_heads",
            "embeddings_merge",  # of several embeddings, which are refused
            "alibi_use_positive_positions",  # of ALiBi, which is refused
            "scale_alibi",
        )
    ),
)


def find_source(path: Path) -> Path | None:
    """Finds the `model.bin` of a directory, or the one that is named; None: there is none."""
    file = path / "model.bin" if path.is_dir() else path
    return file if file.name == "model.bin" and is_ctranslate2(file) else None


def convert(
    file: Path,
    weights: Literal["float32", "int8"] | None = None,
    *,
    texts: Path | None = None,
    target_prefix: str = "",
) -> ForeignModel:
    content = read_ctranslate2(file)
    _check_kind(file, content)
    reader = Reader(content.arrays, str(file))
    scalars = Scalars(reader)
    settings = read_settings(file, content.version)
    special = special_tokens(content, scalars, settings)
    vocabularies = read_vocabularies(file.parent, special, texts, target_prefix)
    kinds = _kinds_of_matrices(content.arrays)
    in_integers = kinds == {"int8"} and weights != "float32"
    matrices = _Matrices(reader, in_integers=in_integers)
    outer, outer_weights = _outer(reader, matrices, vocabularies)
    config = read_config(reader, scalars, settings, {**outer, "source_eos": special.source_eos})
    outer_weights |= _positions(reader, config)
    tensors = build_weights(
        config, len(vocabularies.target.pieces), TABLE, matrices.read, outer_weights, str(file)
    )
    reader.ignore(_IGNORED)
    reader.check_all_taken()
    notes = vocabularies.notes
    if "int8" in kinds and len(kinds) > 1:
        notes = (*notes, "integers are read as float32, as some matrices have another type")
    return ForeignModel(
        kind="CTranslate2",
        config=config,
        weights=tensors,
        tokenizer=vocabularies.tokenizer,
        decoding=DECODING,
        files=(file, *settings.files, *vocabularies.files),
        ids=vocabularies.target.foreign,
        notes=notes,
        weight_type="int8" if in_integers else "float32",
        alignment=_alignment(scalars, config, starts_from_zero=special.start is None),
    )


def _alignment(
    scalars: Scalars, config: ModelConfig, *, starts_from_zero: bool
) -> AlignmentInfo | None:
    """Finds the heads whose attention the engine returns: the first ones of a layer, or all.

    Converters name the last layer where a model was never trained to align, too. Marian's models,
    which start from zero, always align by it.
    """
    layer = scalars.value(("decoder/alignment_layer",), -1)
    n_heads = scalars.value(("decoder/alignment_heads",), 1)
    if layer == -1 and not starts_from_zero:
        return None
    counted = layer + config.n_decoder_layers if layer < 0 else layer
    is_known = counted in range(config.n_decoder_layers) and n_heads in range(config.n_heads + 1)
    if not is_known:
        raise ArtifactError(
            f"{scalars.where}: its alignments use {n_heads:g} heads of layer {layer:g}, but it "
            f"has {config.n_decoder_layers} layers of {config.n_heads}; {ANEW}"
        )
    heads = f".0-{n_heads - 1:.0f}" if n_heads > 1 else ".0" if n_heads else ""
    return AlignmentInfo(heads=f"cross.{counted:.0f}{heads}", convention="naive")


@dataclass(frozen=True)
class _Matrices:
    reader: Reader
    in_integers: bool  # keep integers, with a scale for each row

    def read(self, name: str) -> Weight:
        """Reads a weight; biases that are not there are zeros."""
        if name.endswith("/bias") and name not in self.reader:
            return np.zeros(self.reader.take(f"{name[:-4]}weight").shape[:1], np.float32)
        array = self.reader.take(name)
        if array.dtype.kind == "f":
            return array
        if array.ndim != 2 or array.dtype.itemsize > 2:
            raise ArtifactError(f"{self.reader.where}: {name} is in integers; {ANEW}")
        matrix = Integers(array, self._scale(name, array))
        return matrix if self.in_integers else matrix.real()

    def _scale(self, name: str, array: Array) -> Array:
        """Returns the factor of each row of integers, rounded as the engine rounds it."""
        divisor = np.array([INT16_SCALE], np.float32)
        if array.dtype != np.int16 or f"{name}{SCALE}" in self.reader:
            divisor = self.reader.take(f"{name}{SCALE}").astype(np.float32).ravel()
        with np.errstate(all="ignore"):
            scale = np.float32(1.0) / divisor
        if len(scale) not in (1, len(array)) or not (np.isfinite(scale) & (scale > 0)).all():
            raise ArtifactError(f"{self.reader.where}: {name}{SCALE} is damaged; {ANEW}")
        return np.broadcast_to(scale, (len(array),)).copy()


def _check_kind(file: Path, content: CTranslate2File) -> None:
    if content.kind not in SPECS:
        raise ArtifactError(
            f"{file}: is a {content.kind[:40]}, but only Transformers that translate "
            f"({SPECS[0]}) are supported; {ANOTHER}"
        )
    if content.revision < OLDEST_REVISION:
        raise ArtifactError(
            f"{file}: has the names of CTranslate2 1.0 (revision {content.revision}); convert the "
            "model anew with a newer version"
        )


def _kinds_of_matrices(arrays: LazyArrays) -> set[str]:
    """Names the types of numbers that matrices are in; -128 is not among tformer's int8."""
    kinds = set()
    for name in arrays:
        if name.endswith("/weight"):
            array = arrays[name]
            is_wide = array.dtype == np.int8 and array.min(initial=0) == np.iinfo(np.int8).min
            kinds.add("int8 with -128" if is_wide else array.dtype.name)
    return kinds


def _outer(
    reader: Reader, matrices: _Matrices, vocabularies: Vocabularies
) -> tuple[dict[str, Any], dict[str, Weight]]:
    first = "encoder/embeddings_0/weight"
    sides = {
        first if first in reader else "encoder/embeddings/weight": vocabularies.source,
        "decoder/embeddings/weight": vocabularies.target,
        "decoder/projection/weight": vocabularies.target,
    }
    embeddings = []
    for name, rows in sides.items():
        weight = matrices.read(name)
        shape = (weight.integers if isinstance(weight, Integers) else weight).shape
        n_pieces = max(rows.foreign) + 1
        if shape[:1] != (n_pieces,):
            raise ArtifactError(
                f"{reader.where}: {name} has the shape {[*shape]}, but the vocabulary "
                f"{n_pieces:,} pieces; use this model's own vocabularies"
            )
        embeddings.append(weight)
    source, target, output = embeddings
    rows = vocabularies.target
    tied: TiedEmbeddings = "decoder" if _is_equal(target, output) else "none"
    if tied == "decoder" and vocabularies.is_shared and _is_equal(source, target):
        tied = "all"
    outer = {"source_embedding.weight": vocabularies.source.of(source)}
    if tied != "all":
        outer["target_embedding.weight"] = rows.of(target)
    if tied == "none":
        outer["output_projection.weight"] = rows.of(output)
    bias = "decoder/projection/bias"
    has_bias = bias in reader or bool(rows.banned)
    if has_bias:
        own = reader.take(bias) if bias in reader else None
        if own is not None and own.size != max(rows.foreign) + 1:
            raise ArtifactError(f"{reader.where}: {bias} has {own.size:,} numbers; {ANEW}")
        outer["output_bias"] = output_bias(rows, own)
    n_sources = 0 if vocabularies.is_shared else len(vocabularies.source.pieces)
    return {"tied_embeddings": tied, "output_bias": has_bias, "source_vocab_size": n_sources}, outer


def _is_equal(weight: Weight, other: Weight) -> bool:
    if isinstance(weight, Integers) and isinstance(other, Integers):
        is_scaled_alike = np.array_equal(weight.scale, other.scale)
        return is_scaled_alike and np.array_equal(weight.integers, other.integers)
    if isinstance(weight, Integers) or isinstance(other, Integers):
        return False
    return np.array_equal(weight, other)


def _positions(reader: Reader, config: ModelConfig) -> dict[str, Weight]:
    if methods.POSITIONS[config.positions].stack_shapes is None:
        return {}
    sinusoids = tensor2tensor_halves(config.max_positions, config.d_model, first=1)
    tables: dict[str, Weight] = {}
    for side in SIDES:
        name = POSITIONS.format(side)
        table = reader.take(name)[: config.max_positions] if name in reader else sinusoids
        tables[f"{side}_input.positions.table"] = table
    return tables


ENDING = ".argosmodel"
METADATA = "metadata.json"
MODEL = "model"
# Argos divides by T^0.2; ((5 + T)/6)^0.2 ranks nearly alike
ARGOS_DECODING = DecodingConfig(beam_size=4, length_penalty=0.2)
_NOTE = "length_penalty is 0.2 as in Argos, but divides by ((5 + T)/6)^0.2, not T^0.2"
_MOST_ENTRIES = 10_000


def find_package(path: Path) -> Path | None:
    """Returns a package, a zip or a directory; None if it is none."""
    is_directory = (path / METADATA).is_file() and (path / MODEL).is_dir()
    return path if is_directory or (path.suffix == ENDING and not path.is_dir()) else None


def convert_package(
    package: Path, weights: Literal["float32", "int8"] | None = None
) -> ForeignModel:
    if package.is_dir():
        return _convert_weights(package, weights)
    with scratch_directory() as directory:
        with scratch_errors():
            _extract(package, directory)
        try:
            model = _convert_weights(directory, weights)
        except (ArtifactError, DataError) as error:
            # the user knows the package, not where it was unpacked
            raise ArtifactError(str(error).replace(str(directory), str(package))) from None
    return replace(model, files=(package,))


def _convert_weights(path: Path, weights: Literal["float32", "int8"] | None) -> ForeignModel:
    metadata = read_json_file(path / METADATA)
    check_settings(path / METADATA, metadata, {"type": ("translate",)})
    source = find_source(path / MODEL)
    if source is None:
        raise ArtifactError(f"{path / MODEL}: holds no model.bin; download the package again")
    prefix = metadata.get("target_prefix") or ""
    if not isinstance(prefix, str):
        raise ArtifactError(f"{path / METADATA}: target_prefix is not text; download it again")
    model = convert(source, weights, texts=path, target_prefix=prefix)
    return replace(
        model,
        kind="Argos",
        decoding=ARGOS_DECODING,
        files=(path / METADATA, *model.files),
        languages=(_code(metadata, "from_code"), _code(metadata, "to_code")),
        notes=(*model.notes, _NOTE),
    )


def _code(metadata: Mapping[str, Any], name: str) -> str:
    code = metadata.get(name)
    return code if isinstance(code, str) else ""


def _extract(package: Path, directory: Path) -> None:
    """Unpacks the files of a model; no name in the package leads outside `directory`."""
    try:
        with open_regular(package) as stream, zipfile.ZipFile(stream) as archive:
            entries = _find_members(package, archive)
            (directory / MODEL).mkdir()
            for name, entry in entries.items():
                with archive.open(entry) as packed, (directory / name).open("wb") as file:
                    shutil.copyfileobj(packed, file)
    except ArtifactError:
        raise
    # besides its own error, zipfile raises those of the decompressors and of the system
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _damage_error(package, error) from None


def _find_members(package: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Finds the files of a model by their names inside the package's only directory."""
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise _damage_error(package, f"it has {len(entries):,} files")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        if ".." in parts or entry.filename.startswith("/") or "\\" in entry.filename:
            raise _damage_error(package, f"it has a file outside of itself: {entry.filename[:60]}")
        name = "/".join(parts[1:])
        is_text = len(parts) == 2 and name.endswith((".json", ".model"))
        is_model = (
            len(parts) == 3 and parts[1] == MODEL and name.endswith((".bin", ".json", ".txt"))
        )
        if (is_text or is_model) and not entry.is_dir():
            if name in members:
                raise _damage_error(package, f"it has {name[:60]} twice")
            members[name] = entry
    if METADATA not in members:
        raise _damage_error(package, f"it has no {METADATA}")
    compressed = sum(entry.compress_size for entry in members.values())
    size = sum(entry.file_size for entry in members.values())
    if size > MOST_EXPANSION * compressed + FREE_BYTES:
        raise _damage_error(package, f"{compressed:,} bytes would become {size:,}")
    return members


def _damage_error(package: Path, reason: object) -> ArtifactError:
    text = " ".join(str(reason).split())[:200] or type(reason).__name__
    return ArtifactError(
        f"{package}: is damaged or not a package of Argos ({text}); download it again"
    )


def find_model(path: Path) -> ConvertAs | None:
    """Finds what converts a package of Argos or the engine's own files; None: they are neither."""
    package = find_package(path)
    if package is not None:
        return lambda weights: convert_package(package, weights)
    source = find_source(path)
    return None if source is None else lambda weights: convert(source, weights)


READER = ModelReader(find_packed=find_model)
