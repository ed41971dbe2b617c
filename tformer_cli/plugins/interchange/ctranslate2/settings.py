"""Settings and vocabularies of CTranslate2's directories.

Settings are scalars in `model.bin` and a config.json next to it. The engine translates pieces and
leaves it to its caller to make them: a SentencePiece model may lie next to the vocabularies, but
need not. A vocabulary without the unknown piece gets it as its last entry. Source: CTranslate2 4.8,
src/vocabulary.cc and src/models/sequence_to_sequence.cc.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.foreign_model import (
    Reader,
    VocabularyOrder,
    model_config,
    reorder_vocabulary,
)
from tformer_cli.foreign.keys import parse_json, read_bytes, read_json_file, read_lines
from tformer_cli.foreign.side_tokenizers import read_tokenizer
from tformer_cli.text.sentencepiece.tokenizer import NO_LANGUAGES, Languages
from tformer_cli.text.tokenizer import FILE_NAME, Tokenizer
from tformer_cli.text.tokenizer import read_tokenizer as read_own_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.methods import Activation
    from tformer_cli.plugins.interchange.ctranslate2.binary import CTranslate2File

# by their numbers; the others are approximations of GELU and of no model that is supported
ACTIVATIONS: Mapping[int, Activation] = MappingProxyType({0: "relu", 2: "swish", 3: "gelu"})
SIDES = ("encoder", "decoder")
CONFIG_VERSION = 6  # version of the format from which on there is a config.json
DEFAULT_HEADS = 8
DEFAULT_EPSILON = 1e-5
LEAST_WIDTH = 4  # frequencies of positions are not defined below
MAX_POSITIONS = 1024  # of positions that are computed, which have no end
# settings of a config.json that could change results, with their known values
KNOWN: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {"add_source_bos": (False,), "add_source_eos": (False, True), "multi_query_attention": (False,)}
)
# its special tokens, and their defaults in formats before it
TOKENS: Mapping[str, str] = MappingProxyType(
    {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}
)
POSITIONS = "{}/position_encodings/encodings"
ANEW, ANOTHER = "convert the model anew", "import another model"
# scalars that are known when they are 0
_UNSUPPORTED = (
    "with_relative_position",
    *(f"{side}/{name}" for side in SIDES for name in ("multi_query_attention", "alibi")),
)
_LAYER = re.compile(r"(encoder|decoder)/layer_(\d{1,4})/")
# scalars of a layer whose queries and keys are turned, and their defaults
_ROTARY = {"rotary_dim": 0.0, "rotary_interleave": 1.0, "rotary_base": 10_000.0}


class Scalars:
    """Settings of a model among its arrays."""

    def __init__(self, reader: Reader) -> None:
        self.where = reader.where
        self._reader = reader

    def value(self, names: Iterable[str], default: float) -> float:
        name = next((name for name in names if name in self._reader), None)
        if name is None:
            return float(default)
        array = self._reader.take(name)
        if array.size != 1 or not np.isfinite(array).all():
            raise ArtifactError(f"{self.where}: {name} is not a number; {ANEW}")
        return float(array.ravel()[0])

    def of_both(self, name: str, default: int) -> int:
        """A whole number of encoder and decoder, which old files have once."""
        first, second = (self.value((f"{side}/{name}", name), default) for side in SIDES)
        if first != second or not first.is_integer():
            raise ArtifactError(
                f"{self.where}: {name} is {first:g} in the encoder and {second:g} in the decoder, "
                f"which is not supported; {ANOTHER}"
            )
        return int(first)

    def factor(self, names: Iterable[str], root: float) -> float:
        """A factor, or a flag for a root; without either it is the root."""
        name = next((name for name in names if name in self._reader), None)
        value = self.value([] if name is None else [name], 1.0)
        if name is None or self._reader.take(name).dtype.kind != "f":
            return root if value else 1.0
        return value

    def check_zero(self, names: Iterable[str]) -> None:
        for name in names:
            value = self.value((name,), 0.0)
            if value:
                raise ArtifactError(f"{self.where}: {name} = {value:g} is not supported; {ANOTHER}")

    def text(self, name: str, default: str) -> str:
        if name not in self._reader:
            return default
        try:
            return self._reader.take(name).tobytes().decode("utf-8")
        except UnicodeDecodeError:
            raise ArtifactError(f"{self.where}: {name} is not text; {ANEW}") from None


@dataclass(frozen=True)
class Settings:
    """The settings of a config.json; old formats have none."""

    values: Mapping[str, Any]
    files: tuple[Path, ...]

    @property
    def epsilon(self) -> float:
        value = self.values.get("layer_norm_epsilon")
        if value is None:
            return DEFAULT_EPSILON
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArtifactError(f"{self.files[0]}: layer_norm_epsilon is not a number; {ANEW}")
        return float(value)


def read_settings(file: Path, version: int) -> Settings:
    path = file.parent / "config.json"
    if version < CONFIG_VERSION and not path.is_file():
        return Settings({}, ())
    values = read_json_file(path)
    for name, value in values.items():
        if name in TOKENS:
            is_known = value is None or isinstance(value, str)
        else:
            is_known = name == "layer_norm_epsilon" or value in (None, 0, *KNOWN.get(name, ()))
        if not is_known:
            raise ArtifactError(
                f"{path}: {name[:40]} = {json.dumps(value)[:60]} is not supported; {ANOTHER}"
            )
    return Settings(values, (path,))


def special_tokens(content: CTranslate2File, scalars: Scalars, settings: Settings) -> SpecialTokens:
    """Finds the names of the special tokens, and the start of translations."""
    named = dict(settings.values)
    if content.version < CONFIG_VERSION:
        scalars.check_zero(("with_source_bos", "user_decoder_start_tokens"))
        named |= {name: scalars.text(name, default) for name, default in TOKENS.items()}
        named["add_source_eos"] = bool(scalars.value(("with_source_eos",), 0.0))
        has_bos = scalars.value(("with_target_bos",), 1.0)
        named["decoder_start_token"] = named["bos_token" if has_bos else "eos_token"]
    starts_from_zero = bool(scalars.value(("decoder/start_from_zero_embedding",), 0.0))
    start = None if starts_from_zero else named.get("decoder_start_token")
    lacking = [name for name in ("unk_token", "eos_token") if not named.get(name)]
    lacking += [] if start or starts_from_zero else ["decoder_start_token"]
    if lacking:
        raise ArtifactError(
            f"{scalars.where}: leaves its {lacking[0]} to its caller, which is not supported; "
            f"{ANOTHER}"
        )
    return SpecialTokens(
        unk=named["unk_token"],
        bos=named.get("bos_token"),
        eos=named["eos_token"],
        start=start,
        adds_source_eos=bool(named.get("add_source_eos")),
    )


def read_config(
    reader: Reader, scalars: Scalars, settings: Settings, outer: Mapping[str, Any]
) -> ModelConfig:
    scalars.check_zero(_UNSUPPORTED)
    widths = [reader.take(f"encoder/layer_0/ffn/linear_{n}/weight").shape for n in (0, 1)]
    if any(len(shape) != 2 for shape in widths) or widths[1][0] < LEAST_WIDTH:
        raise ArtifactError(
            f"{reader.where}: the shapes of encoder/layer_0/ffn are {[*widths[0]]} and "
            f"{[*widths[1]]}, which is not supported; {ANOTHER}"
        )
    (d_ff, _), (d_model, _) = widths
    is_pre = bool(scalars.of_both("pre_norm", 1))
    has_final_norms = any(f"{side}/layer_norm/gamma" in reader for side in SIDES)
    if is_pre and not has_final_norms:
        raise ArtifactError(
            f"{reader.where}: is pre-norm without final norms, which is not supported; {ANOTHER}"
        )
    activation = scalars.of_both("activation", 0)
    if activation not in ACTIVATIONS:
        raise ArtifactError(
            f"{reader.where}: activation = {activation} is not supported; {ANOTHER}"
        )
    n_heads = scalars.of_both("num_heads", DEFAULT_HEADS)
    return model_config(
        Path(reader.where),
        d_model=d_model,
        n_heads=n_heads,
        d_ff=d_ff,
        n_encoder_layers=_n_layers(reader, "encoder"),
        n_decoder_layers=_n_layers(reader, "decoder"),
        norm="pre" if is_pre else "post",
        final_norm="always" if has_final_norms and not is_pre else "pre-norm",
        norm_epsilon=settings.epsilon,
        activation=ACTIVATIONS[activation],
        bias=_has_biases(reader),
        embedding_norm=any(f"{side}/layernorm_embedding/gamma" in reader for side in SIDES),
        scale_embeddings=_scales_embeddings(scalars, d_model),
        **_positions(reader, scalars, d_model / max(1, n_heads)),
        **outer,
    )


def _scales_embeddings(scalars: Scalars, d_model: int) -> bool:
    """Returns whether embeddings are multiplied by √D; another factor is refused."""
    root = d_model**0.5
    first, second = (
        scalars.factor(
            (
                f"{side}/scale_embeddings",
                f"{side}/embeddings_0/multiply_by_sqrt_depth",
                f"{side}/embeddings/multiply_by_sqrt_depth",
            ),
            root,
        )
        for side in SIDES
    )
    for factor in (root, 1.0):
        if np.allclose((first, second), factor, rtol=1e-6, atol=0.0):
            return bool(factor == root)
    raise ArtifactError(
        f"{scalars.where}: scale_embeddings is {first:g} and {second:g}, neither 1 nor the root of "
        f"the width {d_model}, which is not supported; {ANOTHER}"
    )


def _n_layers(reader: Reader, side: str) -> int:
    numbers = [int(m[2]) for name in reader.arrays if (m := _LAYER.match(name)) and m[1] == side]
    return max(numbers, default=-1) + 1


def _has_biases(reader: Reader) -> bool:
    """Returns whether layers have biases; norms of the engine always have some, if only zeros."""
    if any(_LAYER.match(name) and name.endswith("/bias") for name in reader.arrays):
        return True
    betas = [name for name in reader.arrays if name.endswith("/beta")]
    if any(reader.arrays[name].any() for name in betas):
        return True
    reader.ignore(betas)
    return False


def _positions(reader: Reader, scalars: Scalars, head_width: float) -> dict[str, Any]:
    """Finds the kind of positions: a table, or rotated queries and keys."""
    names = [name for name in map(POSITIONS.format, SIDES) if name in reader]
    tables = [reader.arrays[name] for name in names]
    if any(table.ndim != 2 for table in tables):
        raise ArtifactError(f"{reader.where}: {names[0]} is not a table; {ANEW}")
    longest = min(map(len, tables), default=MAX_POSITIONS)
    layers = [
        name.rpartition("/")[0]
        for name in reader.arrays
        if name.endswith("/self_attention/rotary_dim")
    ]
    if not layers:
        return {"positions": "table", "max_positions": longest}
    kinds = {
        tuple(scalars.value((f"{layer}/{name}",), default) for name, default in _ROTARY.items())
        for layer in layers
    }
    width, is_interleaved, base = next(iter(kinds))
    is_everywhere = len(layers) == sum(_n_layers(reader, side) for side in SIDES)
    is_known = is_everywhere and len(kinds) == 1 and width in (0.0, head_width)
    if not is_known or is_interleaved or any(table.any() for table in tables):
        raise ArtifactError(
            f"{reader.where}: its rotary positions are not alike in all layers, of whole heads and "
            f"of their halves, which is not supported; {ANOTHER}"
        )
    reader.ignore(names)
    return {"positions": "rotary", "rotary_base": base, "max_positions": longest}


# names that padding has in other tools; the engine itself needs none
PADDING = ("<pad>", "<blank>")
_SIDES = ("source", "target")
# tokens that name a language in M2M-100 and NLLB
_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})")
_TAG = re.compile(r">>(.+)<<")  # the same in OPUS-MT


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Pieces that the settings of a model name."""

    unk: str
    bos: str | None
    eos: str
    start: str | None  # token that a translation begins with; None: a row of zeros
    adds_source_eos: bool  # the engine itself appends `eos` to a source

    @property
    def source_eos(self) -> bool:
        """True if sources end with `eos`, whether the engine adds it or the caller's tokenizer.

        Tokenizers of Hugging Face's library add it, and their models start from zeros, the end or
        padding. Models of OpenNMT-py start from `<s>` and have no end of sources.
        """
        return self.adds_source_eos or self.start != self.bos or self.start in PADDING


@dataclass(frozen=True, kw_only=True)
class Vocabularies:
    """Both vocabularies, and what cuts text into their pieces."""

    source: VocabularyOrder
    target: VocabularyOrder
    is_shared: bool
    tokenizer: Tokenizer
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def read_vocabularies(
    path: Path, special: SpecialTokens, texts: Path | None = None, target_prefix: str = ""
) -> Vocabularies:
    shared = _file(path, "shared")
    files = [shared] if shared else [_file(path, side) for side in _SIDES]
    missing = next((side for side, file in zip(_SIDES, files, strict=False) if not file), None)
    if missing is not None:
        raise ArtifactError(
            f"{path}: has no shared_vocabulary.json and no {missing}_vocabulary.json; copy the "
            "whole directory (models with several inputs are not supported)"
        )
    listings = [file for file in files if file]
    pieces = [_read_pieces(file, special.unk) for file in listings]
    is_shared = pieces[0] == pieces[-1]
    target = _rows(listings[-1], pieces[-1], special, is_target=True)
    source = target if is_shared else _rows(listings[0], pieces[0], special, is_target=False)
    languages = _languages(pieces, special, target_prefix, listings[-1])
    place, sides = texts or path, (source, target)
    tokenizer, more, notes = _read_own(place, *sides), [place / FILE_NAME], list[str]()
    if tokenizer is None:
        tokenizer, more, notes = read_tokenizer(place, ("", ""), sides, languages)
    return Vocabularies(
        source=source,
        target=target,
        is_shared=is_shared,
        tokenizer=tokenizer,
        files=(*listings, *more),
        notes=tuple(notes),
    )


def _file(path: Path, side: str) -> Path | None:
    names = (f"{side}_vocabulary.{ending}" for ending in ("json", "txt"))
    return next((path / name for name in names if (path / name).is_file()), None)


def _read_pieces(file: Path, unk: str) -> list[str]:
    """Reads pieces by their ids: a JSON list, or one a line."""
    try:
        is_json = file.suffix == ".json"
        pieces = parse_json(read_bytes(file)) if is_json else read_lines(file)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise ArtifactError(f"{file}: is damaged ({reason}); copy it again") from None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ArtifactError(f"{file}: is not a list of pieces; copy it again")
    if unk not in pieces:
        pieces.append(unk)
    if len(set(pieces)) < len(pieces):
        raise ArtifactError(f"{file}: has a piece twice; use this model's own vocabulary")
    return pieces


def _rows(
    file: Path, pieces: list[str], special: SpecialTokens, *, is_target: bool
) -> VocabularyOrder:
    """Orders a vocabulary; a source may lack the start, and the end if it does not have one."""
    needed = [special.eos] if is_target or special.source_eos else []
    if is_target and special.start is not None:
        needed.append(special.start)
    lacking = next((piece for piece in needed if piece not in pieces), None)
    if lacking is not None:
        raise ArtifactError(
            f"{file}: lacks {lacking[:40]}, which config.json names; use this model's own files"
        )

    def find(piece: str | None) -> int | None:
        return pieces.index(piece) if piece is not None and piece in pieces else None

    named = {special.unk, special.eos, special.start}
    pad = next((piece for piece in PADDING if piece in pieces and piece not in named), None)
    ids = find(pad), pieces.index(special.unk), find(special.start), find(special.eos)
    return reorder_vocabulary(pieces, *ids)


def _languages(
    pieces: Sequence[list[str]], special: SpecialTokens, target_prefix: str, file: Path
) -> Languages:
    if target_prefix:
        if target_prefix not in pieces[-1]:
            raise ArtifactError(
                f"{file}: lacks the target_prefix {target_prefix[:40]}; use this model's own files"
            )
        return Languages(
            tokens={target_prefix: target_prefix}, before_target=True, target=target_prefix
        )
    tags = {match[1]: piece for piece in pieces[0] if (match := _TAG.fullmatch(piece))}
    if tags and special.source_eos:
        return Languages(tokens=tags, before_source="target", in_text=True)
    tokens = {m[1] or m[2]: piece for piece in pieces[0] if (m := _LANGUAGE.fullmatch(piece))}
    if len(tokens) > 1 and special.start == special.eos and len(pieces) == 1:
        return Languages(tokens=tokens, before_source="source", before_target=True)
    return NO_LANGUAGES


def _read_own(path: Path, source: VocabularyOrder, target: VocabularyOrder) -> Tokenizer | None:
    """Reads the tokenizer of a directory that tformer has exported; None: it has another."""
    file = path / FILE_NAME
    if not file.is_file():
        return None
    try:
        tokenizer = read_own_tokenizer(file)
    except DataError:  # Hugging Face's, which some converters copy
        return None
    for side, rows in ((tokenizer.source, source), (tokenizer.target, target)):
        numbers = range(side.vocab_size)
        if rows.foreign != tuple(numbers) or side.pieces(numbers) != [*rows.pieces]:
            raise ArtifactError(
                f"{file}: its vocabulary differs from the model's; export the model again"
            )
    return tokenizer
