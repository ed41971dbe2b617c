"""Vocabularies and merges that were cut short: a check of every importer's result.

A cut `vocab.txt` or `merges.txt` is still readable, but makes another tokenizer. Two facts show it:
rows of the model without a piece, and pieces that no merge makes.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import UNUSED, ForeignModel
from tformer_cli.foreign.hugging_face.keys import TOKENIZER_CONFIG, added_tokens
from tformer_cli.foreign.keys import read_json_file
from tformer_cli.text.foreign_pieces import BytePieceTokenizer
from tformer_cli.text.pieces import CONTINUES, END, PieceSide
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceSide
from tformer_cli.text.tokenizer import SPECIAL_PIECES, Tokenizer, TokenizerSide
from tformer_cli.text.vocabulary import BYTE_CHARACTERS

# multiples that tools pad the rows of a vocabulary to, for the speed of their products
PADDED_TO = (8, 64, 128)
# at most one piece in this many may have no merge, such as words outside the merges' training text
_TOLERATED = 100
_UNUSED = re.compile(rf"{UNUSED}(\d+)>")
# pieces that are names, not text; fairseq pads its dictionaries with the last
_NAME = re.compile(r"<.*>|\[.*\]|madeupword\d+", re.DOTALL)
_VOCABULARIES = ("vocab", "dict", "tokenizer", ".spm", ".model")
# parts of the names of files of vocabularies and of merges
_MERGES = ("merges", "code", ".bpe", ".model", "tokenizer")


def check_complete(model: ForeignModel) -> ForeignModel:
    """Refuses a model whose vocabulary has rows without a reason, or pieces that nothing makes."""
    sides = list(dict.fromkeys((model.tokenizer.source, model.tokenizer.target)))
    names = [_pieces(side) for side in sides]
    if not any(names):
        return model
    declared = _declared_tokens(model.files)
    where = _file(model.files, _VOCABULARIES)
    notes: list[str] = []
    for pieces in names:
        notes += _rows_without_piece(pieces, {*declared.values()}, model.spare_rows, where)
    notes += _pieces_without_merge(
        model.tokenizer, sides, names, declared, _file(model.files, _MERGES)
    )
    return replace(model, notes=(*model.notes, *dict.fromkeys(notes)))


def _pieces(side: TokenizerSide) -> Sequence[str]:
    """The pieces of a side as their files write them; none of a tokenizer without such files."""
    if isinstance(side, SentencePieceSide | PieceSide):
        return side.vocabulary.pieces
    return getattr(side, "all_pieces", ())


def _file(files: Sequence[Path], parts: Iterable[str]) -> Path:
    """Finds the file that has one of some parts in its name; the first one where none has."""
    return next((file for part in parts for file in files if part in file.name), files[0])


def _declared_tokens(files: Iterable[Path]) -> dict[str, int]:
    """Tokens that files next to a model add to its vocabulary, with their ids; -1: no id."""
    tokens: dict[str, int | None] = {}
    for directory in dict.fromkeys(file.parent for file in files if file.parent.is_dir()):
        file = directory / TOKENIZER_CONFIG
        tokens |= added_tokens(directory, read_json_file(file) if file.is_file() else {})
    return {token: -1 if number is None else number for token, number in tokens.items()}


def _rows_without_piece(
    pieces: Sequence[str], declared: set[int], spare: int, where: Path
) -> Iterable[str]:
    numbers = {int(match[1]) for piece in pieces if (match := _UNUSED.fullmatch(piece))}
    numbers -= declared
    if len(numbers) <= spare:
        return
    n_rows = max(numbers) + 1  # padding comes after all entries
    if not any(n_rows % size == 0 and len(numbers) < size for size in PADDED_TO):
        raise ArtifactError(
            f"{where}: the model has {len(numbers):,} rows without an entry of the vocabulary, and "
            "no setting explains them, so a file may be cut short; download it again"
        )
    yield f"{len(numbers):,} rows have no entry of the vocabulary and are never written"


def _pieces_without_merge(
    tokenizer: Tokenizer,
    sides: Sequence[TokenizerSide],
    names: Sequence[Sequence[str]],
    declared: Iterable[str],
    where: Path,
) -> Iterable[str]:
    if isinstance(tokenizer, BytePieceTokenizer):
        mergeable = {"".join(pair) for pair in tokenizer.merges} | {*BYTE_CHARACTERS}
        tolerated = 0  # such vocabularies declare their added tokens
    else:
        codes = [side.codes for side in sides if isinstance(side, PieceSide) and side.codes]
        if not codes:
            return
        mergeable = {"".join(pair) for table in codes for pair in table.ranks}
        mergeable |= {piece.removesuffix(END) for piece in mergeable}
        is_whole = all(table.text.endswith("\n") for table in codes)
        tolerated = sum(map(len, names)) // _TOLERATED if is_whole else 0
    known = {*SPECIAL_PIECES, *declared}
    lost = [
        piece
        for piece in dict.fromkeys(piece for pieces in names for piece in pieces)
        if piece not in mergeable
        and piece not in known
        and not _NAME.fullmatch(piece)
        and len(piece) > 1
        and not (len(stem := piece.removesuffix(CONTINUES)) == 1 or stem in mergeable)
    ]
    if not lost:
        return
    fact = f'{len(lost):,} pieces of the vocabulary, such as "{lost[0][:40]}", are made by no merge'
    if len(lost) > tolerated:
        raise ArtifactError(
            f"{where}: {fact}, so a file may be cut short; use this model's own files"
        )
    yield f"{fact}, so texts never have them"
