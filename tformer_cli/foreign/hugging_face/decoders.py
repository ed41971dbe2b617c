"""Language models of the library, both ways: GPT-2's class, LLaMA's and Qwen2's.

Learned and sinusoidal positions with layer norms are exported as GPT-2, rotary ones with RMS norms
and gated layers as LLaMA. nanoGPT's, minGPT's and llama2.c's models are put together here, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import (
    NEVER,
    Reader,
    Rows,
    Weight,
    arranged,
    assembled,
    output_bias,
)
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    model_config,
    number,
    read_bytes,
    read_json_file,
    shown,
)
from tformer_cli.foreign.hugging_face.byte_pieces import (
    END,
    ByteVocabulary,
    read_vocabulary,
    with_tokenizer_files,
)
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    check_no_biases,
    named_weights,
    position_rows,
)
from tformer_cli.foreign.hugging_face.generation import Generation, read_generation
from tformer_cli.foreign.hugging_face.keys import (
    ROLES,
    TOKENIZER,
    added_tokens,
    check_added,
    check_surrounding,
    read_tokenizer_files,
)
from tformer_cli.foreign.hugging_face.sentencepiece_json import (
    LLAMA_TOKENIZER,
    LLAMA_WHOLE,
    check_whole,
)
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.sentencepiece.spm_file import CONTROL, UNKNOWN, USER_DEFINED, read_spm
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.formats.lazy_arrays import Array
    from tformer_cli.foreign.hugging_face.layout import Layout

_IGNORED = re.compile(r".*(\.attn\.(bias|masked_bias)|rotary_emb\.inv_freq)")
"""Tensors of older files that hold no parameters: masks and frequencies."""


class Vocabulary(Protocol):
    """Pieces by their foreign ids, and what cuts text into them."""

    @property
    def texts(self) -> Mapping[str, bool]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    def rows(self, size: int, where: str) -> Rows: ...
    def tokenizer(self, rows: Rows, where: str) -> Tokenizer: ...


@dataclass(frozen=True, kw_only=True)
class SpmVocabulary:
    """The pieces of a SentencePiece model; texts stand between two of them."""

    data: bytes
    file: Path
    """Of the tokenizer."""
    ends: tuple[int, int]
    """Ids of the start and the end."""
    texts: Mapping[str, bool]
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def rows(self, size: int, where: str) -> Rows:
        model = read_spm(self.data, str(self.file))
        if size != len(model.pieces):
            raise ArtifactError(
                f"{self.file}: has {len(model.pieces):,} pieces, but the model has {size:,} rows; "
                "use this model's own files, or, if the other rows are padding, remove them "
                f"(resize_token_embeddings({len(model.pieces)}))"
            )
        if max(self.ends) >= size:
            raise ArtifactError(
                f"{where}: texts begin and end with the ids {self.ends[0]} and {self.ends[1]}, but "
                f"the model has {size:,} rows; use this model's own files"
            )
        return arranged(model.pieces, None, model.unknown, *self.ends)

    def tokenizer(self, rows: Rows, where: str) -> Tokenizer:  # noqa: ARG002 - as all have it
        return SentencePieceTokenizer.build(self.data, None, rows.pieces, where=str(self.file))


def read(source: Source) -> ForeignModel:
    """Reads a directory of the library."""
    file, settings = source.file, source.settings
    generation = read_generation(source.path, settings)
    shape = source.shape()
    read_own = _read_pieces if source.family.model_type == "llama" else _read_bytes
    vocabulary = read_own(source, generation)
    decoding, of_search = generation.generator(shape["max_positions"])
    model = put_together(
        f"Hugging Face {source.family.title}",
        source.family,
        source.reader,
        file,
        shape,
        vocabulary,
        (file, *source.weight_files, *vocabulary.files, *generation.files),
        banned=generation.banned,
    )
    notes = (*source.notes, *generation.notes, *of_search, *model.notes)
    return replace(model, decoding=decoding, notes=notes)


def put_together(
    kind: str,
    family: Family,
    reader: Reader,
    file: Path,
    shape: Mapping[str, Any],
    vocabulary: Vocabulary,
    files: tuple[Path, ...],
    *,
    banned: Callable[[Rows], Rows] = lambda rows: rows,
) -> ForeignModel:
    """Makes a language model of arrays by the names of a family.

    Args:
        kind: says what it is a model of.
        family: its table.
        reader: its arrays.
        file: named in errors.
        shape: its settings by tformer's names.
        vocabulary: its pieces.
        files: that were read.
        banned: adds the tokens that are never written to rows.
    """
    outer = {ours: f"{theirs}.weight" for ours, theirs in family.outer.items()}
    embedding = reader.take(outer["target_embedding"])
    if embedding.ndim != 2:
        raise ArtifactError(f"{file}: the embedding is no matrix; download the model again")
    rows = banned(vocabulary.rows(len(embedding), str(file)))
    output = reader.take(outer["output"]) if outer["output"] in reader else embedding
    tied = "decoder" if np.array_equal(output, embedding) else "none"
    config = model_config(file, **{**shape, "tied_embeddings": tied, **vocabulary.texts})
    given: dict[str, Weight] = {
        "target_embedding.weight": rows.of(embedding),
        "output_projection.weight": rows.of(output),
        "output_bias": output_bias(rows, None),
    }
    if "positions" in outer:
        given["decoder_input.positions.table"] = reader.take(outer["positions"])

    def take(name: str) -> Array:
        array = reader.take(name)
        return array.T if family.transposed and array.ndim == 2 else array

    weights = assembled(config, len(rows.pieces), family.modules, take, given, str(file))
    reader.ignore([name for name in reader.arrays if _IGNORED.fullmatch(name)])
    reader.check_all_taken()
    notes = [*vocabulary.notes]
    if not (config.target_bos or config.target_eos):
        notes.append("its texts have no beginning: generate needs a prompt to go on from")
    return ForeignModel(
        kind=kind,
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        decoding=DecodingConfig(beam_size=1, sampling=True),
        files=files,
        ids=rows.foreign,
        spare_rows=family.spare_rows,
        notes=tuple(notes),
    )


def _read_bytes(source: Source, generation: Generation) -> ByteVocabulary:
    """GPT-2's vocabulary, or Qwen2's; `<|endoftext|>` ends texts, and no other token does."""
    path = source.path
    words = source.family.model_type
    vocabulary = with_tokenizer_files(path, read_vocabulary(path, words))
    end = {**source.settings, **generation.special_ids}.get("eos_token_id")
    is_piece = type(end) is int and end in vocabulary.pieces.values()
    if isinstance(end, list) or (is_piece and end != vocabulary.end):
        raise ArtifactError(
            f"{source.file}: eos_token_id = {shown(end)} is not that of {END}, which ends texts "
            "here; import another model"
        )
    generation.check_forced(-1 if vocabulary.end is None else vocabulary.end)
    if (path / TOKENIZER).is_file():
        check_surrounding(path / TOKENIZER, read_json_file(path / TOKENIZER), (), ())
    return vocabulary


def _read_pieces(source: Source, generation: Generation) -> SpmVocabulary:
    """LLaMA's SentencePiece model; the files beside it must cut texts in the same way."""
    path, file, settings = source.path, source.path / "tokenizer.model", source.settings
    data = read_bytes(file)
    start = number(source.file, settings, "bos_token_id")
    end = number(source.file, {**settings, **generation.special_ids}, "eos_token_id")
    own, notes, files = read_tokenizer_files(path, LLAMA_TOKENIZER)
    model = read_spm(data, str(file))
    roles = {str(own[role]) for role in ROLES if role in own}
    added = added_tokens(path, own)
    special = model.of_type(UNKNOWN, CONTROL, USER_DEFINED)
    ids = {piece: place for place, piece in enumerate(model.pieces)}
    check_added(path, added, ids, {*special, *roles})
    ids |= {token: place for token, place in added.items() if place is not None}
    first = own.get("bos_token", model.pieces[start] if start < len(model.pieces) else "")
    if ids.get(first, start) != start:
        raise ArtifactError(
            f"{path}: its tokenizer begins texts with {shown(first)}, but bos_token_id = {start} "
            "is another token; correct one of the two"
        )
    more, whole = check_whole(path, LLAMA_WHOLE, model, ids, ((first,), ()))
    return SpmVocabulary(
        data=data,
        file=file,
        ends=(start, end),
        texts={},
        notes=(*notes, *more, *generation.check_forced(end)),
        files=(file, *files, *whole),
    )


def _generation(directory: ModelDirectory, layout: Layout) -> dict[str, Any]:
    """Returns the defaults of generation: special tokens, and those that are never written."""
    bias = directory.model.output_bias
    never = {UNK_ID} if bias is None else set((bias == NEVER).nonzero().flatten().tolist())
    written = {layout.ids[n] for n in range(len(layout.ids)) if n not in never}
    ids = {layout.ids[token] for token in never} - written - {-1}
    return {
        **_special_ids(layout),
        "max_length": directory.config.max_positions,
        **({"suppress_tokens": sorted(ids)} if ids else {}),
    }


def _special_ids(layout: Layout) -> dict[str, int | None]:
    named = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    ids = {name: layout.ids[token] for name, token in named.items()}
    return {name: one if one >= 0 else None for name, one in ids.items()}


def family_of(directory: ModelDirectory) -> Family:
    """Returns the family whose class comes nearest to a language model."""
    config, origin = directory.config, directory.info.origin
    if origin is not None and origin.kind.endswith(FAMILIES["qwen2"].title):
        return FAMILIES["qwen2"]
    return FAMILIES[
        "llama" if config.positions == "rotary" or config.norm_kind == "rms" else "gpt2"
    ]


def write(directory: ModelDirectory, family: Family) -> Parts:
    """Makes the parts of an export."""
    from tformer_cli.foreign.hugging_face.layout import decoder_layout

    config, layout = directory.config, decoder_layout(directory)
    settings = {
        "vocab_size": layout.sizes[1],
        "tie_word_embeddings": config.tied_embeddings != "none" and not config.scale_embeddings,
        **_special_ids(layout),
        **family.write(config),
    }
    return Parts(
        settings=settings,
        weights=_weights(directory, family, layout),
        layout=layout,
        generation=_generation(directory, layout),
    )


def _weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    model, config, outer = directory.model, directory.config, family.outer
    check_no_biases(directory, family, "export with --format int8")
    # √D of the embeddings alone: where both are one matrix it becomes two
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    found = {f"{outer['target_embedding']}.weight": layout.ordered(model.target_matrix) * scale}
    if config.tied_embeddings == "none" or config.scale_embeddings:
        found[f"{outer['output']}.weight"] = layout.ordered(model.output_matrix)
    if "positions" in outer:
        found[f"{outer['positions']}.weight"] = position_rows(model.decoder_input, config)
    ours = model.state_dict()
    return found | named_weights(family, config, ours, model.vocab_size, directory.path)
