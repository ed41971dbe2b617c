"""Language models of the library, both ways: classes of GPT-2, GPT-NeoX, LLaMA and Qwen2.

With layer norms, learned and sinusoidal positions are exported as GPT-2, rotary ones as GPT-NeoX;
rotary ones with RMS norms and gated layers as LLaMA. nanoGPT's, minGPT's and llama2.c's models are
put together here, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    BANNED_BIAS,
    ForeignModel,
    VocabularyOrder,
    Weight,
    model_config,
    output_bias,
    reorder_vocabulary,
)
from tformer_cli.foreign.hugging_face.byte_pieces import (
    END,
    ByteVocabulary,
    read_library_vocabulary,
    read_vocabulary,
    with_tokenizer_files,
)
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import (
    Family,
    Parts,
    Source,
    check_no_biases,
    finish,
    named_weights,
    position_rows,
)
from tformer_cli.foreign.hugging_face.generation import (
    Generation,
    own_settings,
    read_generation,
    written_search,
)
from tformer_cli.foreign.hugging_face.keys import (
    ROLES,
    TOKENIZER,
    TOKENIZER_CONFIGS,
    added_tokens,
    check_added,
    check_surrounding,
    read_tokenizer_files,
)
from tformer_cli.foreign.hugging_face.spm_tokenizers import check_whole
from tformer_cli.foreign.hugging_face.tokenizers import Exported, read_exported
from tformer_cli.foreign.keys import number, quote, read_bytes, read_json_file
from tformer_cli.model.methods import NORMS
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.sentencepiece.spm_file import CONTROL, UNKNOWN, USER_DEFINED, read_spm
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.foreign.hugging_face.layout import Layout


class Vocabulary(Protocol):
    """Pieces by their foreign ids, and what cuts text into them."""

    @property
    def texts(self) -> Mapping[str, bool]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def files(self) -> Sequence[Path]: ...
    def rows(self, size: int, where: str) -> VocabularyOrder: ...
    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer: ...


@dataclass(frozen=True, kw_only=True)
class SpmVocabulary:
    """The pieces of a SentencePiece model; texts stand between two of them."""

    data: bytes
    file: Path  # of the tokenizer
    ends: tuple[int, int]  # ids of the start and the end
    texts: Mapping[str, bool]
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def rows(self, size: int, where: str) -> VocabularyOrder:
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
        return reorder_vocabulary(model.pieces, None, model.unknown, *self.ends)

    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer:  # noqa: ARG002 - as all have it
        return SentencePieceTokenizer.build(self.data, None, rows.pieces, where=str(self.file))


def read(source: Source) -> ForeignModel:
    generation = read_generation(source.path, source.settings)
    shape = source.shape()
    exported = read_exported(source.path)
    if exported is not None:
        vocabulary: Vocabulary = _check_exported(source, generation, exported)
    elif (source.path / "tokenizer.model").is_file() and source.family.model_type == "llama":
        vocabulary = _read_pieces(source, generation)
    elif (source.path / TOKENIZER).is_file() and source.family.model_type != "gpt2":
        end = _end_of(source, generation)
        vocabulary = read_library_vocabulary(source.path, source.settings, end)
        source.notes += generation.check_forced(-1 if end is None else end)
    elif source.family.model_type in ("gpt2", "qwen2"):
        vocabulary = _read_bytes(source, generation)
    else:
        raise ArtifactError(
            f"{source.path}: has no tokenizer.json, and no tokenizer.model of a LLaMA; download "
            "the whole model"
        )
    decoding, notes = generation.generator(shape["max_positions"])
    own = generation.read_exported(source.settings, shape["max_positions"], has_source=False)
    if own is not None:
        decoding, notes = own, []
    source.notes += [*generation.notes, *notes]
    model = assembled_model(source, shape, vocabulary, banned=generation.ban_tokens)
    return replace(model, decoding=decoding, files=(*model.files, *generation.files))


def assembled_model(
    source: Source,
    shape: Mapping[str, Any],
    vocabulary: Vocabulary,
    *,
    kind: str = "",
    banned: Callable[[VocabularyOrder], VocabularyOrder] = lambda rows: rows,
) -> ForeignModel:
    """Makes a language model of a `shape` by tformer's names.

    `banned` adds the tokens that are never written to rows.
    """
    family, reader, file = source.family, source.reader, source.file
    outer = {ours: f"{theirs}.weight" for ours, theirs in family.outer.items()}
    embedding = source.read_embedding([outer["target_embedding"]], outer["output"])
    if embedding.ndim != 2:
        raise ArtifactError(
            f"{file}: embedding: expected 2 dimensions, found {embedding.ndim}; download it again"
        )
    rows = banned(vocabulary.rows(len(embedding), str(file)))
    output = source.read_output(outer["output"], embedding)
    # files store a tied matrix twice, or once; equal rows stay one matrix when they are trained on
    tied = "decoder" if np.array_equal(output, embedding) else "none"
    config = model_config(file, **{**shape, "tied_embeddings": tied, **vocabulary.texts})
    weights: dict[str, Weight] = {
        "target_embedding.weight": rows.of(embedding),
        "output_projection.weight": rows.of(output),
        "output_bias": output_bias(rows, None),
    }
    if "positions" in outer:
        weights["decoder_input.positions.table"] = reader.take(outer["positions"])
    notes = [*vocabulary.notes]
    if not (config.target_bos or config.target_eos):
        notes.append("its texts have no beginning: generate needs a prompt to continue")
    return finish(
        source,
        config,
        weights,
        ids=rows.foreign,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        files=vocabulary.files,
        notes=notes,
        decoding=DecodingConfig(beam_size=1, sampling=True),
        kind=kind,
    )


def _end_of(source: Source, generation: Generation) -> int | None:
    """Returns the id of the token that ends texts; None: no token does."""
    ids = {**source.settings, **generation.special_ids}
    return None if ids.get("eos_token_id") is None else number(source.file, ids, "eos_token_id")


def _check_exported(source: Source, generation: Generation, exported: Exported) -> Exported:
    """Checks the tokens around the texts of a model that tformer has exported."""
    ids = {**source.settings, **generation.special_ids}
    start, (before, behind) = SPECIAL_PIECES[BOS_ID], exported.around
    end = ids.get("eos_token_id")  # none: the texts are cut out of a stream
    if end not in (None, EOS_ID) or behind or [*before] not in ([], [start]):
        raise ArtifactError(
            f"{exported.files[0]}: texts do not begin and end with the tokens of an export by "
            "tformer; use this model's own files"
        )
    generation.check_forced(EOS_ID)
    return replace(exported, texts={"target_bos": bool(before), "target_eos": end is not None})


def _read_bytes(source: Source, generation: Generation) -> ByteVocabulary:
    """GPT-2's vocabulary, or Qwen2's; `<|endoftext|>` ends texts, and no other token does."""
    path = source.path
    words = source.family.model_type
    vocabulary = read_vocabulary(path, words)
    vocabulary = with_tokenizer_files(path, vocabulary, source.settings.get("tokenizer_class"))
    end = _end_of(source, generation)
    if end in vocabulary.pieces.values() and end != vocabulary.end:
        raise ArtifactError(
            f"{source.file}: eos_token_id = {quote(end)} is not that of {END}, which ends texts "
            "here; import another model"
        )
    generation.check_forced(-1 if vocabulary.end is None else vocabulary.end)
    if (path / TOKENIZER).is_file():
        check_surrounding(path / TOKENIZER, read_json_file(path / TOKENIZER), (), ())
    return vocabulary


def _read_pieces(source: Source, generation: Generation) -> SpmVocabulary:
    """LLaMA's SentencePiece model; the files next to it must cut texts in the same way."""
    path, file, settings = source.path, source.path / "tokenizer.model", source.settings
    data = read_bytes(file)
    start = number(source.file, settings, "bos_token_id")
    end = _end_of(source, generation)
    if end is None:
        end = number(source.file, settings, "eos_token_id")
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["llama"])
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
            f"{path}: its tokenizer begins texts with {quote(first)}, but bos_token_id = {start} "
            "is another token; correct one of the two"
        )
    if own.get("add_bos_token") is None and not (path / TOKENIZER).is_file():
        notes.append(
            f"texts begin with {quote(first)}, as in version 4 of the library; version 5 puts none "
            "where add_bos_token is not set"
        )
    more, whole = check_whole(path, "llama", model, ids, ((first,), ()))
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
    never = {UNK_ID} if bias is None else set((bias == BANNED_BIAS).nonzero().flatten().tolist())
    written = {layout.ids[n] for n in range(len(layout.ids)) if n not in never}
    ids = {layout.ids[token] for token in never} - written - {-1}
    return {
        **_special_ids(directory, layout),
        **written_search(directory.decoding, directory.config.max_positions, has_source=False),
        **({"suppress_tokens": sorted(ids)} if ids else {}),
    }


def _special_ids(directory: ModelDirectory, layout: Layout) -> dict[str, int | None]:
    named = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    ids = {name: layout.ids[token] for name, token in named.items()}
    if not directory.config.target_eos:  # the token is in the vocabulary, but ends no text
        ids["eos_token_id"] = -1
    return {name: token_id if token_id >= 0 else None for name, token_id in ids.items()}


def family_of(directory: ModelDirectory) -> Family:
    """Returns the family whose class comes nearest to a language model."""
    config, origin = directory.config, directory.info.origin
    if origin is not None and origin.kind.endswith(FAMILIES["qwen2"].title):
        return FAMILIES["qwen2"]
    if NORMS[config.norm_kind].has_bias:
        return FAMILIES[{"rotary": "gpt_neox"}.get(config.positions, "gpt2")]
    return FAMILIES["llama"]


def write(directory: ModelDirectory, family: Family) -> Parts:
    from tformer_cli.foreign.hugging_face.layout import decoder_layout

    config, layout = directory.config, decoder_layout(directory)
    settings = {
        "vocab_size": layout.sizes[1],
        "tie_word_embeddings": config.tied_embeddings != "none" and not config.scale_embeddings,
        **_special_ids(directory, layout),
        **family.write(config),
        **own_settings(directory.decoding),
    }
    return Parts(
        settings=settings,
        weights=_weights(directory, family, layout),
        layout=layout,
        generation=_generation(directory, layout),
    )


def _weights(directory: ModelDirectory, family: Family, layout: Layout) -> dict[str, Tensor]:
    model, config, outer = directory.model, directory.config, family.outer
    check_no_biases(directory, family, "use it here")
    # √D scales only the embeddings: a matrix that both share becomes two
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    weights = {
        f"{outer['target_embedding']}.weight": layout.order_rows(model.target_matrix) * scale
    }
    if config.tied_embeddings == "none" or config.scale_embeddings:
        weights[f"{outer['output']}.weight"] = layout.order_rows(model.output_matrix)
    if "positions" in outer:
        weights[f"{outer['positions']}.weight"] = position_rows(model.decoder_input, config)
    ours = model.state_dict()
    return weights | named_weights(family, config, ours, model.vocab_size, directory.path)
