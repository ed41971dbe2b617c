"""Finds what cuts the texts of a foreign translation model: SentencePiece, merges, or nothing."""

from collections.abc import Sequence
from pathlib import Path

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import VocabularyOrder
from tformer_cli.foreign.keys import read_bytes, read_text
from tformer_cli.text.pieces import PieceTokenizer
from tformer_cli.text.sentencepiece.tokenizer import NO_LANGUAGES, Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import Tokenizer

CODES = ("bpecodes", "bpe.codes", "codes", "code", "*.bpecodes", "*.codes", "*.bpe")
SPMS = ("*.model", "*.spm")  # names of SentencePiece models; a file of merges may be called so, too
# words in the names of a side's files
_SIDES = ("source", "src"), ("target", "tgt", "trg")
# begins a file of merges
_VERSION = b"#version:"
IN_PIECES = (
    "no SentencePiece model (*.model) and no list of merges (bpecodes) lies next to it, so texts "
    "are the pieces of its vocabulary with spaces between them, as its own tokenizer writes them"
)
IN_WORDS = (
    "texts are words with spaces between them, tokenized as those that it was trained on (often "
    "by Moses)"
)


def spm_tokenizer(
    spms: tuple[Path, Path],
    sides: tuple[VocabularyOrder, VocabularyOrder],
    tokens: Languages = NO_LANGUAGES,
) -> SentencePieceTokenizer:
    """Makes a tokenizer from a SentencePiece model for each side; equal ones are stored once."""
    return SentencePieceTokenizer.build(
        read_bytes(spms[0]),
        None if spms[0] == spms[1] else read_bytes(spms[1]),
        sides[0].pieces,
        None if sides[1].pieces == sides[0].pieces else sides[1].pieces,
        languages=tokens,
        where=str(spms[0]),
    )


def read_tokenizer(
    directory: Path,
    languages: tuple[str, str],
    sides: tuple[VocabularyOrder, VocabularyOrder],
    tokens: Languages = NO_LANGUAGES,
) -> tuple[Tokenizer, list[Path], list[str]]:
    """Finds what cuts text: SentencePiece models, merges, or nothing; the last is a note."""
    pieces = sides[0].pieces
    others = None if sides[1].pieces == pieces else sides[1].pieces
    models, merges = _files(directory)
    spms = _by_side(directory, models, languages)
    if spms is not None:
        return spm_tokenizer(spms, sides, tokens), list(dict.fromkeys(spms)), []
    if tokens.before_target:  # texts of pieces do not name a language
        raise ArtifactError(
            f"{directory}: has no SentencePiece model; put the one that it was trained with there "
            "(one *.spm or *.model file, or source.spm and target.spm)"
        )
    codes = _by_side(directory, merges, languages)
    if codes is None:
        return PieceTokenizer.build(pieces, others, where=str(directory)), [], [IN_PIECES]
    texts = [read_text(path) for path in codes]
    in_words = PieceTokenizer.build(pieces, others, (texts[0], texts[1]), str(codes[0]))
    return in_words, list(dict.fromkeys(codes)), [IN_WORDS]


def _files(directory: Path) -> tuple[list[Path], list[Path]]:
    """Finds SentencePiece models and files of merges; these may be called as those are."""
    # subword-nmt's users call their merges bpe.model, too, so the first bytes decide
    models = sorted({path for pattern in SPMS for path in directory.glob(pattern)})
    in_text = [path for path in models if read_bytes(path).startswith(_VERSION)]
    named = {path for pattern in CODES for path in directory.glob(pattern)}
    return [path for path in models if path not in in_text], sorted({*in_text, *named})


def _by_side(
    directory: Path, files: Sequence[Path], languages: tuple[str, str]
) -> tuple[Path, Path] | None:
    """Picks a file for both sides, or one for each with its name or language; None: none."""
    if len(files) < 2:
        return (files[0], files[0]) if files else None
    by_code = [[path for path in files if code in path.name.split(".")] for code in languages]
    by_word = [[path for path in files if any(w in path.name for w in words)] for words in _SIDES]
    for source, target in (by_code, by_word) if all(languages) else (by_word,):
        if len(source) == len(target) == 1 and source != target:
            return source[0], target[0]
    names = ", ".join(path.name for path in files[:4])
    raise ArtifactError(
        f"{directory}: has {names}, and it is unclear which of them its texts were cut with; leave "
        "one, or one for each language with its code in the name (spm.en.model, or source.spm)"
    )
