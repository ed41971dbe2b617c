"""Vocabularies of Marian's models, and the tokenizers that cut texts into their pieces.

Beside vocabularies in YAML lie the SentencePiece models that texts are cut with, or a tokenizer of
tformer's, whose labels the pieces then are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import Rows, arranged, names_of_rows
from tformer_cli.foreign.foreign_model import number, read_bytes
from tformer_cli.foreign.formats.yaml_text import read_yaml
from tformer_cli.foreign.marian.layout import EOS_PIECE, TOKENIZER, UNK_PIECE, MarianSource
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.text.tokenizer import EOS_ID, Tokenizer, TokenizerSide
from tformer_cli.text.tokenizer_file import read_tokenizer

Read = tuple[tuple[Rows, Rows], Tokenizer, list[Path]]
"""Rows of source and target, the tokenizer, and the files."""


def read_vocabularies(source: MarianSource, settings: Mapping[str, Any]) -> Read:
    """Reads the vocabularies, and orders their rows."""
    files = list(dict.fromkeys(source.vocabularies))
    tokenizer_file = files[0].with_name(TOKENIZER)
    if files[0].suffix == ".yml" and tokenizer_file.is_file():
        return _by_labels(source, settings, tokenizer_file)
    spms = [_spm_of(file) for file in source.vocabularies]
    sizes = settings.get("dim-vocabs")
    rows = []
    for place, (file, spm) in enumerate(zip(source.vocabularies, spms, strict=True)):
        pieces = _pieces(file, spm)
        size = number(source.model, {"dim-vocabs": _at(sizes, place)}, "dim-vocabs")
        pieces = names_of_rows({piece: n for n, piece in enumerate(pieces)}, size, file)
        if EOS_PIECE not in pieces or UNK_PIECE not in pieces:
            raise ArtifactError(f"{file}: lacks {EOS_PIECE} or {UNK_PIECE}; use another model")
        eos, unk = pieces.index(EOS_PIECE), pieces.index(UNK_PIECE)
        rows.append(arranged(pieces, None, unk, None, eos))
    first, last = rows[0], rows[-1]
    is_same = first.pieces == last.pieces
    tokenizer = SentencePieceTokenizer.build(
        read_bytes(spms[0]),
        None if spms[0] == spms[-1] else read_bytes(spms[-1]),
        first.pieces,
        None if is_same else last.pieces,
        where=str(spms[0]),
    )
    return (first, last), tokenizer, list(dict.fromkeys([*files, *spms]))


def _by_labels(source: MarianSource, settings: Mapping[str, Any], file: Path) -> Read:
    """Reads vocabularies whose pieces are the labels of a tokenizer of tformer's."""
    tokenizer = read_tokenizer(file)
    sizes = settings.get("dim-vocabs")
    sides = (tokenizer.source, tokenizer.target)
    paths = (source.vocabularies[0], source.vocabularies[-1])
    rows = []
    for place, (path, side) in enumerate(zip(paths, sides, strict=True)):
        pieces = _listed(path)
        size = number(source.model, {"dim-vocabs": _at(sizes, place)}, "dim-vocabs")
        if size != len(pieces):
            raise ArtifactError(
                f"{path}: has {len(pieces):,} pieces, but the model {size:,}; use its own "
                "vocabulary"
            )
        rows.append(_labeled(side, pieces, path))
    return (rows[0], rows[1]), tokenizer, [*dict.fromkeys([*paths, file])]


def _labeled(side: TokenizerSide, pieces: list[str], path: Path) -> Rows:
    """Orders the rows of pieces as a tokenizer's; tokens without one are never written."""
    labels = side.pieces(range(side.vocab_size))
    ids = {piece: n for n, piece in enumerate(pieces)}
    foreign = tuple(ids.get(label, -1) for label in labels)
    if foreign[EOS_ID] < 0:
        raise ArtifactError(f"{path}: lacks {EOS_PIECE}; use this model's own")
    if len(ids) > sum(n >= 0 for n in foreign):
        raise ArtifactError(
            f"{path}: has pieces that {TOKENIZER} beside it lacks; use this model's own"
        )
    return Rows(foreign, tuple(labels), tuple(t for t, n in enumerate(foreign) if n < 0))


def _at(sizes: object, place: int) -> object:
    return sizes[place] if isinstance(sizes, list) and place < len(sizes) else None


def _spm_of(vocabulary: Path) -> Path:
    """Finds the SentencePiece model of a vocabulary: itself, or a single one beside it."""
    if vocabulary.suffix == ".spm":
        return vocabulary
    side = "target" if "trg" in vocabulary.name or "target" in vocabulary.name else "source"
    beside = sorted(vocabulary.parent.glob("*.spm"))
    found = [spm for spm in beside if side in spm.name] or beside
    if len(found) != 1:
        raise ArtifactError(
            f"{vocabulary}: needs the SentencePiece model ({side}.spm) that its texts were cut "
            "with; put it beside it"
        )
    return found[0]


def _pieces(vocabulary: Path, spm: Path) -> list[str]:
    if vocabulary == spm:
        return list(read_spm(read_bytes(spm), str(spm)).pieces)
    return _listed(vocabulary)


def _listed(vocabulary: Path) -> list[str]:
    """Reads the pieces of a vocabulary in YAML in the order of their ids."""
    found = read_yaml(vocabulary)
    if not isinstance(found, dict):
        raise ArtifactError(f"{vocabulary}: is not a vocabulary; use this model's own")
    ids = {piece: number(vocabulary, {piece: n}, piece) for piece, n in found.items()}
    pieces = {n: piece for piece, n in ids.items()}
    if sorted(pieces) != list(range(len(ids))):
        raise ArtifactError(f"{vocabulary}: its ids are not 0, 1, 2, …; use this model's own")
    return [pieces[n] for n in range(len(pieces))]
