"""Vocabularies and tokenizers of CTranslate2's directories.

The engine translates pieces and leaves it to its caller to make them: a SentencePiece model may lie
beside the vocabularies, but need not. A vocabulary without the unknown piece gets it as its last
entry. Source: CTranslate2 4.8, src/vocabulary.cc and src/models/sequence_to_sequence.cc.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.foreign.assembly import Rows, arranged
from tformer_cli.foreign.foreign_model import parse_json, read_bytes, read_lines
from tformer_cli.text.pieces import PieceTokenizer
from tformer_cli.text.sentencepiece.languages import NO_LANGUAGES, Languages
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import FILE_NAME, Tokenizer
from tformer_cli.text.tokenizer_file import read_tokenizer

PADDING = ("<pad>", "<blank>")
"""Names that padding has in other tools; the engine itself needs none."""
SPM_FILES = ("*.spm", "*.model")
_SIDES = {"source": ("source", "src"), "target": ("target", "tgt", "trg")}
"""Words in the names of a side's files."""
_LANGUAGE = re.compile(r"__([a-z]{2,3})__|([a-z]{3}_[A-Z][a-z]{3})")
"""Tokens that name a language in M2M-100 and NLLB."""
_TAG = re.compile(r">>(.+)<<")
"""The same in OPUS-MT."""
_NO_TOKENIZER = (
    "has no tokenizer, so text must be pieces separated by spaces; put the SentencePiece model "
    "that it was trained with beside it (one *.spm or *.model file, or source.spm and target.spm)"
)
_WORDS = (
    "text must be words as the tokenizer of Moses separates them, and so are translations: it is "
    "cut into pieces by the merges of {name}"
)
_CODES = b"#version"
"""Beginning of a file of subword-nmt's merges."""


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Pieces that the settings of a model name."""

    unk: str
    bos: str | None
    eos: str
    start: str | None
    """Token that a translation begins with; None: a row of zeros."""
    adds_source_eos: bool
    """The engine itself puts `eos` behind a source."""

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

    source: Rows
    target: Rows
    is_shared: bool
    """Both sides have the same vocabulary."""
    tokenizer: Tokenizer
    files: tuple[Path, ...]
    """Files that were read."""
    notes: tuple[str, ...]
    """Sentences for the user."""


def read_vocabularies(
    path: Path, special: SpecialTokens, texts: Path | None = None, target_prefix: str = ""
) -> Vocabularies:
    """Reads the vocabularies of a directory and finds its tokenizer."""
    shared = _file(path, "shared")
    files = [shared] if shared else [_file(path, side) for side in _SIDES]
    missing = next((side for side, file in zip(_SIDES, files, strict=False) if not file), None)
    if missing is not None:
        raise ArtifactError(
            f"{path}: has no shared_vocabulary.json and no {missing}_vocabulary.json; copy the "
            "whole directory (models with several inputs are not supported)"
        )
    found = [file for file in files if file]
    pieces = [_read_pieces(file, special.unk) for file in found]
    is_shared = pieces[0] == pieces[-1]
    target = _rows(found[-1], pieces[-1], special, is_target=True)
    source = target if is_shared else _rows(found[0], pieces[0], special, is_target=False)
    languages = _languages(pieces, special, target_prefix, found[-1])
    tokenizer, more, notes = _tokenizer(texts or path, source, target, languages)
    return Vocabularies(
        source=source,
        target=target,
        is_shared=is_shared,
        tokenizer=tokenizer,
        files=(*found, *more),
        notes=notes,
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


def _rows(file: Path, pieces: list[str], special: SpecialTokens, *, is_target: bool) -> Rows:
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
    start = find(special.start)
    return arranged(pieces, find(pad), pieces.index(special.unk), start, find(special.eos))


def _languages(
    pieces: Sequence[list[str]], special: SpecialTokens, target_prefix: str, file: Path
) -> Languages:
    """Finds how a model is told its languages."""
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
    found = {m[1] or m[2]: piece for piece in pieces[0] if (m := _LANGUAGE.fullmatch(piece))}
    if len(found) > 1 and special.start == special.eos and len(pieces) == 1:
        return Languages(tokens=found, before_source="source", before_target=True)
    return NO_LANGUAGES


def _tokenizer(
    path: Path, source: Rows, target: Rows, languages: Languages
) -> tuple[Tokenizer, list[Path], tuple[str, ...]]:
    """Finds what cuts text: tformer's own file, SentencePiece models, or nothing."""
    own = _exported(path, source, target)
    if own is not None:
        return own, [path / FILE_NAME], ()
    spms = _spm_files(path)
    others = None if source is target else target.pieces
    if not spms:
        if languages.before_target:
            raise ArtifactError(f"{path}: {_NO_TOKENIZER}")
        tokenizer: Tokenizer = PieceTokenizer.build(source.pieces, others, where=str(path))
        return tokenizer, [], (_NO_TOKENIZER,)
    first = read_bytes(spms[0])
    if first.startswith(_CODES):
        codes = first.decode("utf-8", "replace")
        where = str(spms[0])
        tokenizer = PieceTokenizer.build(source.pieces, others, (codes, codes), where)
        return tokenizer, spms, (_WORDS.format(name=spms[0].name),)
    tokenizer = SentencePieceTokenizer.build(
        first,
        None if len(spms) == 1 else read_bytes(spms[1]),
        source.pieces,
        others,
        languages=languages,
        where=str(spms[0]),
    )
    return tokenizer, spms, ()


def _exported(path: Path, source: Rows, target: Rows) -> Tokenizer | None:
    """Reads the tokenizer of a directory that tformer has exported; None: it has another."""
    file = path / FILE_NAME
    if not file.is_file():
        return None
    try:
        tokenizer = read_tokenizer(file)
    except DataError:  # Hugging Face's, which some converters copy
        return None
    for side, rows in ((tokenizer.source, source), (tokenizer.target, target)):
        numbers = range(side.vocab_size)
        if rows.foreign != tuple(numbers) or side.pieces(numbers) != [*rows.pieces]:
            raise ArtifactError(
                f"{file}: is of another vocabulary than the model; export the model again"
            )
    return tokenizer


def _spm_files(path: Path) -> list[Path]:
    """Finds the SentencePiece model of a directory, or those of source and target."""
    found = sorted({file for pattern in SPM_FILES for file in path.glob(pattern)})
    if len(found) <= 1:
        return found
    sides = [
        [file for file in found if any(word in file.name for word in words)]
        for words in _SIDES.values()
    ]
    if [len(files) for files in sides] != [1, 1] or len(found) != 2:
        raise ArtifactError(
            f"{path}: has {len(found)} SentencePiece models; keep one, or name two source.spm and "
            "target.spm"
        )
    return [sides[0][0], sides[1][0]]
