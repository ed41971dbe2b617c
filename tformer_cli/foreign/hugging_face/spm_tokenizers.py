"""A tokenizer.json next to or instead of a SentencePiece model, and T5's tokenizers.

T5's own SentencePiece model ends before the tokens `<extra_id_99>` … `<extra_id_0>`, which stand
for spans removed from a text. They become words that are one piece, as in the authors' library
seqio; mT5's file has them already. Other special tokens in a text are plain text.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    UNUSED,
    VocabularyOrder,
    names_of_rows,
    reorder_vocabulary,
)
from tformer_cli.foreign.hugging_face.keys import (
    TOKENIZER,
    TOKENIZER_CONFIGS,
    WHOLE_TOKENIZERS,
    added_of,
    added_tokens,
    check_added,
    check_surrounding,
    read_tokenizer_files,
)
from tformer_cli.foreign.hugging_face.same_tokens import SENTINEL
from tformer_cli.foreign.keys import read_bytes, read_json_file
from tformer_cli.text.joint_tokenizer import JointTokenizer, blank_tokenizer
from tformer_cli.text.sentencepiece.spm_file import (
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    SpmModel,
    read_spm,
    spm_piece,
    write_spm,
)
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer
from tformer_cli.text.tokenizer import SPECIAL_PIECES, Tokenizer
from tformer_cli.text.vocabulary import BYTE_CHARACTERS

_ROUNDING = 1e-3


def check_whole(
    path: Path,
    kind: str,
    spm: SpmModel,
    ids: Mapping[str, int],
    around: tuple[Sequence[str], Sequence[str]] | None = None,
) -> tuple[list[str], list[Path]]:
    """Checks the tokenizer.json next to a SentencePiece model, if there is one.

    `same_tokens` later checks that both cut texts alike.
    """
    file = path / TOKENIZER
    if not file.is_file():
        return [], []
    parts = read_json_file(file)
    notes = WHOLE_TOKENIZERS[kind].read(file, parts)
    if around is not None:
        check_surrounding(file, parts, *around)
    model = parts.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    try:
        named = (
            {str(piece): place for place, (piece, _) in enumerate(vocab)}
            if isinstance(vocab, list)
            else dict(vocab)  # type: ignore[arg-type]
        )
    except (TypeError, ValueError):
        raise ArtifactError(f"{file}: has no vocabulary; download it again") from None
    other = next(
        (
            piece
            for piece, place in {**named, **added_of(parts, file)}.items()
            if ids.get(piece) != place
        ),
        None,
    )
    if other is not None or len(named) < len(spm.pieces):
        which = "fewer pieces" if other is None else f"another id of {ascii(other)[:60]}"
        raise ArtifactError(
            f"{file}: has {which} than the SentencePiece model next to it; use the files of one "
            "model"
        )
    if isinstance(vocab, list):
        scores = dict(zip(spm.pieces, spm.scores, strict=True))
        normal = spm.of_type(NORMAL)
        other = next((p for p, n in vocab if p in normal and abs(n - scores[p]) > _ROUNDING), None)
        if other is not None:
            raise ArtifactError(
                f"{file}: has another score of {ascii(other)[:60]} than the SentencePiece model "
                "next to it; use the files of one model"
            )
    if charsmap_of(parts.get("normalizer")) != spm.charsmap:
        raise ArtifactError(
            f"{file}: normalizer replaces other characters than the SentencePiece model next to "
            "it; use the files of one model"
        )
    return notes, [file]


def charsmap_of(part: object) -> bytes:
    """The table of replacements in a normalizer of a tokenizer.json; empty: it has none."""
    if not isinstance(part, dict):
        return b""
    if part.get("type") == "Precompiled":
        return base64.b64decode(str(part.get("precompiled_charsmap") or ""))
    inner = part.get("normalizers")
    return b"".join(map(charsmap_of, inner)) if isinstance(inner, list) else b""


_N_SENTINELS = 100  # how many there are where nothing says it
_LANGUAGE = re.compile(r"<2([A-Za-z][\w-]*)>")  # how MADLAD-400 names the language that is written
# task of T5's config.json that translates into a language
_TASK = re.compile(r"translation_\w+?_to_(\w+)")
END_PIECE = "</s>"


@dataclass(frozen=True, kw_only=True)
class T5Vocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Sequence[str]
    unknown: int
    spm: bytes  # sentencePiece model of the pieces; empty: they are bytes
    # texts that ask for a translation, by the language that is written
    prompts: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    def rows(self, size: int, pad: int, start: int, end: int, where: str) -> VocabularyOrder:
        """Orders the rows of a model; those without a piece are never written."""
        if len(self.pieces) > size or max(pad, start, end, self.unknown) >= size:
            raise ArtifactError(
                f"{where}: the vocabulary has {len(self.pieces):,} entries, but the model {size:,} "
                "rows; use this model's own files"
            )
        names = names_of_rows({piece: n for n, piece in enumerate(self.pieces)}, size, where)
        if not self.spm:  # words of text are cut at spaces
            names = [name.replace(UNUSED, "<unused") for name in names]
        rows = reorder_vocabulary(names, pad, self.unknown, start, end)
        unused = [n for n, row in enumerate(rows.foreign) if row >= len(self.pieces)]
        return VocabularyOrder(rows.foreign, rows.pieces, (*rows.banned, *unused))

    def tokenizer(self, rows: VocabularyOrder) -> Tokenizer:
        where = str(self.files[0])
        if self.spm:
            languages = Languages(prompts=self.prompts)
            pieces = rows.pieces
            return SentencePieceTokenizer.build(
                self.spm, None, pieces, languages=languages, where=where
            )
        blank = blank_tokenizer("byte")
        places = {piece: place for place, piece in enumerate(rows.pieces)}
        blank.model = type(blank.model)(vocab=places, merges=[])
        blank.add_special_tokens(list(SPECIAL_PIECES))
        return JointTokenizer.parse(blank.to_str(), where)


def read_t5_vocabulary(path: Path, settings: Mapping[str, Any], size: int) -> T5Vocabulary:
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["t5"])
    named = own.get("tokenizer_class") or settings.get("tokenizer_class")
    if str(named).removesuffix("Fast") == "ByT5Tokenizer":
        pieces = [*_padded_specials(), *BYTE_CHARACTERS]
        known = {f"<extra_id_{n}>" for n in range(size)} | set(_padded_specials())
        check_added(path, added_tokens(path, own), {}, known)
        files = files or [path / "config.json"]
        return T5Vocabulary(
            pieces=pieces, unknown=2, spm=b"", files=tuple(files), notes=tuple(notes)
        )
    spm, whole = path / "spiece.model", path / TOKENIZER
    if spm.is_file():
        data = read_bytes(spm)
        model = read_spm(data, str(spm))
        added = _sentinels(own, model.pieces, size)
        data += b"".join(spm_piece(piece, 0.0, USER_DEFINED) for piece in added)
        pieces, file = [*model.pieces, *added], spm
        unknown = model.unknown
        ids = _number_pieces(pieces)
        more, _ = check_whole(path, "t5", model, ids, ((), (END_PIECE,)))
        files = [*files, *([whole] if whole.is_file() else [])]
        notes = [*notes, *more]
        known = {*map(_plain, added), *model.of_type(CONTROL, UNKNOWN, USER_DEFINED)}
        check_added(
            path, added_tokens(path, own), ids, known | set(filter(SENTINEL.fullmatch, ids))
        )
    elif whole.is_file():
        parts = read_json_file(whole)
        notes += WHOLE_TOKENIZERS["t5"].read(whole, parts)
        check_surrounding(whole, parts, (), (END_PIECE,))
        model, file = _read_whole(whole), whole
        data, pieces, unknown = write_spm(model), model.pieces, model.unknown
        ids = _number_pieces(pieces)
        check_added(path, added_tokens(path, own), ids, ids)
    else:
        raise ArtifactError(
            f"{path}: has neither spiece.model nor tokenizer.json; download the whole model"
        )
    prompts = {m[1]: piece for piece in pieces if (m := _LANGUAGE.fullmatch(piece))}
    return T5Vocabulary(
        pieces=pieces,
        unknown=unknown,
        spm=data,
        prompts=prompts or dict(_prompts(settings)),
        files=(file, *files),
        notes=tuple(notes),
    )


def _plain(piece: str) -> str:
    """Removes the space before a token for an omitted span."""
    name = piece.removeprefix(SPACE)
    return name if SENTINEL.fullmatch(name) else piece


def _number_pieces(pieces: Sequence[str]) -> dict[str, int]:
    return {_plain(piece): place for place, piece in enumerate(pieces)}


def _padded_specials() -> tuple[str, ...]:
    pad, unk, _, end = SPECIAL_PIECES
    return pad, end, unk


def _prompts(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts that T5's config.json names for translation; of one language, only if sure."""
    tasks = settings.get("task_specific_params") or {}
    prefixes_of: dict[str, set[str]] = {}
    for name, task in tasks.items() if isinstance(tasks, dict) else ():
        match = _TASK.fullmatch(name)
        prefix = task.get("prefix") if isinstance(task, dict) else None
        if match and isinstance(prefix, str) and prefix.strip():
            prefixes_of.setdefault(match[1], set()).add(prefix)
    for code, prefixes in prefixes_of.items():
        if len(prefixes) == 1:
            yield code, prefixes.pop()


def _sentinels(own: Mapping[str, Any], pieces: Sequence[str], size: int) -> list[str]:
    """The pieces `▁<extra_id_99>` … `▁<extra_id_0>`, which follow those of the file."""
    if any(SENTINEL.fullmatch(piece.removeprefix(SPACE)) for piece in pieces):
        return []
    count = own.get("extra_ids")
    if type(count) is not int:
        count = _N_SENTINELS
    n_rest = size - len(pieces)
    return [f"{SPACE}<extra_id_{n}>" for n in range(count - 1, -1, -1)] if count <= n_rest else []


def _read_whole(file: Path) -> SpmModel:
    """Reads a tokenizer.json of unigram pieces as the SentencePiece model that it was made of."""
    data = read_json_file(file)
    model = data.get("model") or {}
    charsmap = charsmap_of(data.get("normalizer"))
    entries = [(str(piece), float(score)) for piece, score in model["vocab"]]
    kinds = {model["unk_id"]: UNKNOWN}
    for token in data.get("added_tokens") or ():
        place, piece = token["id"], token["content"]
        if place == len(entries):
            entries.append((piece, 0.0))
        if not 0 <= place < len(entries) or entries[place][0] != piece:
            raise ArtifactError(
                f"{file}: its added tokens have other ids than its pieces; download it again"
            )
        is_sentinel = bool(SENTINEL.fullmatch(piece))
        if is_sentinel or not token.get("special"):
            kinds.setdefault(place, USER_DEFINED)
            entries[place] = (f"{SPACE}{piece}" if is_sentinel else piece), 0.0
        else:
            kinds.setdefault(place, CONTROL)
    return SpmModel(
        [piece for piece, _ in entries],
        [score for _, score in entries],
        bytes(kinds.get(place, NORMAL) for place in range(len(entries))),
        charsmap=charsmap,
    )
