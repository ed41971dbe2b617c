"""The vocabulary of a model as Hugging Face's library has it: order of ids, and files.

tformer's own tokenizers keep their ids. An imported Marian model gets its own ids back, and the
SentencePiece files that it was imported with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import processors
from torch import Tensor

from tformer_cli.artifacts.config_file import TOKENIZER
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.converters.assembly import NEVER
from tformer_cli.data.joint_tokenizer import JointTokenizer
from tformer_cli.data.pipelines import SPECIAL_PIECES
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.data.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from tformer_cli.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ids and files of an exported vocabulary."""

    ids: tuple[int, ...]
    """The exported id of each of tformer's ids; start and padding may share one."""
    files: Mapping[str, bytes]
    """Contents of the tokenizer's files, by their names."""
    settings: Mapping[str, Any]
    """What tokenizer_config.json says besides what all have."""
    renormalizes: bool = False
    """True if probabilities are of the tokens that can be written alone."""

    @property
    def size(self) -> int:
        """Rows of the exported vocabulary."""
        return max(self.ids) + 1

    def ordered(self, rows: Tensor) -> Tensor:
        """Puts rows (V, …) in the exported order.

        Ids without a token get zeros. Where start and padding share a row it is the start's, for
        padding is never looked at; a bias that bans a token becomes 0.
        """
        rows = torch.where(rows == NEVER, 0.0, rows)
        found = rows.new_zeros(self.size, *rows.shape[1:])
        found[list(self.ids)] = rows
        found[self.ids[BOS_ID]] = rows[BOS_ID]
        return found


def layout_of(directory: ModelDirectory) -> Layout:
    """Decides how the vocabulary of a model is exported.

    Raises:
        UsageError: if the library has no tokenizer for it without SentencePiece's own rules.
    """
    tokenizer = directory.tokenizer
    if isinstance(tokenizer, JointTokenizer):
        return _joint(tokenizer)
    if isinstance(tokenizer, SentencePieceTokenizer) and directory.config.norm == "post":
        languages = tokenizer.languages
        has_marian_tags = languages.before_source == "target" and languages.in_text
        is_shared = tokenizer.source.vocabulary is tokenizer.target.vocabulary
        if is_shared and directory.info.origin and (has_marian_tags or not languages.tokens):
            return _marian(directory, tokenizer)
    raise UsageError(
        f"{directory.path}: has the SentencePiece tokenizer of an imported model, which --format "
        "huggingface writes of Marian models with one vocabulary alone; use the model it was "
        "imported from"
    )


def _joint(tokenizer: JointTokenizer) -> Layout:
    """The tokenizer as it is, with `</s>` behind every text."""
    made = HuggingFaceTokenizer.from_str(tokenizer.to_json())
    pad, unk, bos, eos = SPECIAL_PIECES
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, EOS_ID)]
    )
    return Layout(
        ids=tuple(range(tokenizer.vocab_size)),
        files={TOKENIZER: (made.to_str(pretty=True) + "\n").encode()},
        settings={
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": pad,
            "unk_token": unk,
            "bos_token": bos,
            "eos_token": eos,
            # "</s>" in a text is four characters, not the token
            "split_special_tokens": True,
        },
    )


def _marian(directory: ModelDirectory, tokenizer: SentencePieceTokenizer) -> Layout:
    """The vocabulary of an imported Marian model, by its own ids."""
    origin = directory.info.origin
    runs = origin.ids if origin is not None else ()
    ids = [first + n if first >= 0 else -1 for first, length in runs for n in range(length)]
    rest = ids[UNK_ID:BOS_ID] + ids[EOS_ID:]
    # start and padding may share a row, for one is never read and the other never written
    if (
        len(ids) != tokenizer.vocab_size
        or len({*rest}) != len(rest)
        or {ids[PAD_ID], ids[BOS_ID], -1} & {*rest}
        or min(ids) < 0
    ):
        raise UsageError(
            f"{directory.path}: its special tokens share rows in the model it was imported from, "
            "which --format huggingface cannot write; use that model"
        )
    pieces = {
        _original(piece): number
        for piece, number in zip(tokenizer.target.vocabulary.pieces, ids, strict=True)
        if not piece.startswith("<unused ")
    }
    if ids[PAD_ID] == ids[BOS_ID]:
        del pieces[SPECIAL_PIECES[BOS_ID]]
    by_id = dict(sorted(pieces.items(), key=lambda item: item[1]))
    return Layout(
        ids=tuple(ids),
        files={
            "source.spm": tokenizer.source.file.data,
            "target.spm": tokenizer.target.file.data,
            "vocab.json": (json.dumps(by_id, ensure_ascii=False, indent=1) + "\n").encode(),
        },
        settings={
            "tokenizer_class": "MarianTokenizer",
            "source_lang": directory.info.source_language or None,
            "target_lang": directory.info.target_language or None,
            "separate_vocabs": False,
        },
        renormalizes=True,
    )


def _original(piece: str) -> str:
    """The name that a piece had before the import, which renames those named as specials."""
    inner = piece.removeprefix("<foreign ").removesuffix(">")
    return inner if inner != piece and inner in SPECIAL_PIECES else piece
