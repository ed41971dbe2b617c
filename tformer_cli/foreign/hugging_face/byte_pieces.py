"""GPT-2's vocabularies: tokenizer.json, vocab.json and merges.txt, or nanoGPT's list of characters.

RoBERTa's files are the same with other special tokens, Qwen2's with another pattern of words.
Sources: transformers 5.23, models/gpt2/tokenization_gpt2.py, models/qwen2/tokenization_qwen2.py;
nanoGPT, data/shakespeare_char/prepare.py.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import MOST_ROWS, UNUSED, Rows, arranged, names_of_rows
from tformer_cli.foreign.foreign_model import read_bytes, read_json_file
from tformer_cli.foreign.formats.pickles import PickleError, PickleReader
from tformer_cli.foreign.hugging_face.keys import (
    ROLES,
    added_of,
    added_tokens,
    check_added,
    read_tokenizer_files,
    rows_of,
    tokenizer_config,
    whole_tokenizer,
)
from tformer_cli.foreign.keys import USED, Parts, no_effect, noted, only
from tformer_cli.text.foreign_pieces import QWEN2_WORDS, BytePieceTokenizer
from tformer_cli.text.joint_tokenizer import UNKNOWN_PIECE, blank_tokenizer
from tformer_cli.text.tokenizer import SPECIAL_PIECES, UNK_ID, Tokenizer
from tformer_cli.text.tokenizer_file import parse_tokenizer

END = "<|endoftext|>"
TOKENIZER_CONFIG = tokenizer_config(
    "GPT-2",
    ("GPT2Tokenizer", "Qwen2Tokenizer"),
    **rows_of("add_prefix_space add_bos_token add_eos_token", only(None, False)),
    clean_up_tokenization_spaces=noted("texts keep the spaces that their pieces have", False),
)
CLASSES = TOKENIZER_CONFIG.rows["tokenizer_class"]
"""Values of tokenizer_class."""
_BYTE_LEVEL = {
    "add_prefix_space": only(False),
    "trim_offsets": no_effect("where pieces stand in a text"),
}
_MODEL = {
    **rows_of("vocab merges", USED),
    "type": only("BPE"),
    "dropout": only(None, 0.0),
    "unk_token": no_effect("every byte is a piece"),
    **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
    "byte_fallback": only(False),
    "ignore_merges": only(False),
    "fuse_unk": no_effect("every byte is a piece"),
}
_SPLIT = {
    "pattern": only({"Regex": QWEN2_WORDS}),
    "behavior": only("Isolated"),
    "invert": only(False),
}
WHOLE = {
    "gpt2": whole_tokenizer(
        "GPT-2",
        normalizer=Parts({None: {}}),
        pre_tokenizer=Parts({"ByteLevel": {**_BYTE_LEVEL, "use_regex": only(True)}}),
        model=_MODEL,
    ),
    "qwen2": whole_tokenizer(
        "Qwen2",
        normalizer=Parts({"NFC": {}}),
        pre_tokenizer=Parts(
            {"Split": _SPLIT, "ByteLevel": {**_BYTE_LEVEL, "use_regex": only(False)}},
            in_sequence=True,
        ),
        model=_MODEL,
    ),
}
"""By the pattern of words."""
_TURNS = {"<|im_start|>", "<|im_end|>"}
"""Tokens around the turns of chats with Qwen2; in texts here they are text."""
_LARGEST_MERGES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class ByteVocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Mapping[str, int]
    merges: tuple[tuple[str, str], ...] | None
    """Merges of BPE on bytes; None: the pieces are those of a pipeline without merges."""
    files: tuple[Path, ...]
    """Files that were read."""
    algorithm: Literal["char", "word"] = "char"
    """That pipeline."""
    words: str = "gpt2"
    """See `BytePieceTokenizer`."""
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> int | None:
        """Id of what stands between texts, if there is such a token."""
        return self.pieces.get(END)

    @property
    def texts(self) -> dict[str, bool]:
        """Settings of the model: texts begin with their first token."""
        return {"target_bos": False, "target_eos": self.end is not None}

    def rows(self, size: int, where: str) -> Rows:
        names = names_of_rows(self.pieces, size, where)
        rows = arranged(names, None, -1, self.end, self.end)
        unused = [n for n, name in enumerate(rows.pieces) if name.startswith(UNUSED)]
        ends = [] if self.end is not None else [3]
        return Rows(rows.foreign, rows.pieces, (*rows.banned, UNK_ID, *ends, *unused))

    def tokenizer(self, rows: Rows, where: str) -> Tokenizer:
        if self.merges is not None:
            return BytePieceTokenizer(rows.pieces, self.merges, where, words=self.words)
        blank = blank_tokenizer(self.algorithm)
        places = {piece: place for place, piece in enumerate(rows.pieces)}
        blank.model = type(blank.model)(vocab=places, unk_token=UNKNOWN_PIECE)
        blank.add_special_tokens(list(SPECIAL_PIECES))
        return parse_tokenizer(blank.to_str(), where)


def read_vocabulary(path: Path, words: str = "gpt2") -> ByteVocabulary:
    """Reads the vocabulary of a language model in a directory."""
    vocabulary = find_vocabulary(path, words)
    if vocabulary is None:
        raise ArtifactError(
            f"{path}: has no vocabulary; put vocab.json and merges.txt, or nanoGPT's meta.pkl, "
            "beside the model"
        )
    return vocabulary


def with_tokenizer_files(path: Path, vocabulary: ByteVocabulary) -> ByteVocabulary:
    """Adds what the files of the library beside a vocabulary say."""
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIG)
    known = {END, *(str(own[role]) for role in ROLES if role in own)}
    added, pieces = added_tokens(path, own), dict(vocabulary.pieces)
    if vocabulary.words == "qwen2":
        known |= _TURNS
        # its vocab.json has no special tokens
        pieces |= {token: place for token, place in added.items() if place is not None}
    check_added(path, added, vocabulary.pieces, known)
    read = (*vocabulary.files, *files)
    return replace(vocabulary, pieces=pieces, files=read, notes=tuple(notes))


def find_vocabulary(path: Path, words: str = "gpt2") -> ByteVocabulary | None:
    """Reads the vocabulary in a directory, if there is one.

    Where there is a tokenizer.json, it counts, and the other files must agree with it.
    """
    pieces, merges, whole = (path / n for n in ("vocab.json", "merges.txt", "tokenizer.json"))
    listed = None
    if pieces.is_file() and merges.is_file():
        text = read_bytes(merges, _LARGEST_MERGES).decode("utf-8", "replace")
        lines = text.split("\n", MOST_ROWS)
        pairs = [
            line.rstrip("\r").split(" ") for line in lines if line and line[0:9] != "#version:"
        ]
        listed = _vocabulary(read_json_file(pieces), pairs, (pieces, merges), words)
    if whole.is_file():
        found = _read_whole(whole, words)
        if listed is not None:
            _check_same(whole, found, listed)
        return found
    if listed is not None:
        return listed
    characters = path / "meta.pkl"
    return _read_characters(characters) if characters.is_file() else None


def _read_whole(file: Path, words: str) -> ByteVocabulary:
    parts = read_json_file(file)
    if not isinstance(parts.get("pre_tokenizer"), dict):
        raise ArtifactError(
            f"{file}: has no pre_tokenizer, but GPT-2 cuts text into words; import another model"
        )
    notes = WHOLE[words].read(file, parts)
    steps = parts["pre_tokenizer"].get("pretokenizers", [])
    if words == "qwen2" and [one["type"] for one in steps] != ["Split", "ByteLevel"]:
        raise ArtifactError(
            f"{file}: pre_tokenizer does not cut text as Qwen2 does; import another model"
        )
    model = parts.get("model")
    model = model if isinstance(model, dict) else {}
    found = model.get("merges", [])
    pairs = [one.split(" ") if isinstance(one, str) else one for one in found]
    vocabulary = _vocabulary(model.get("vocab"), pairs, (file,), words)
    pieces = {**vocabulary.pieces, **added_of(parts, file)}
    return replace(vocabulary, pieces=pieces, notes=tuple(notes))


def _check_same(file: Path, whole: ByteVocabulary, listed: ByteVocabulary) -> None:
    """Refuses a tokenizer.json beside a vocab.json and merges.txt of another tokenizer."""
    other = next((one for one, n in listed.pieces.items() if whole.pieces.get(one) != n), None)
    if other is not None:
        what = f"vocab.json has another id of {json.dumps(other)[:40]}"
    elif whole.merges != listed.merges:
        what = "merges.txt has other merges"
    else:
        return
    raise ArtifactError(f"{file}: {what}; use the files of one tokenizer")


def _vocabulary(
    pieces: Any,  # noqa: ANN401
    pairs: list[Any],
    files: tuple[Path, ...],
    words: str,
) -> ByteVocabulary:
    is_sound = isinstance(pieces, dict) and all(
        type(place) is int and place >= 0 for place in pieces.values()
    )
    if not is_sound or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ArtifactError(
            f"{files[0]}: is not a vocabulary of BPE on bytes; use this model's own files"
        )
    merges = tuple((str(left), str(right)) for left, right in pairs)
    return ByteVocabulary(pieces=pieces, merges=merges, files=files, words=words)


def _read_characters(file: Path) -> ByteVocabulary:
    """Reads nanoGPT's meta.pkl as data: nothing in it is run."""
    try:
        found = PickleReader(io.BytesIO(read_bytes(file, 1 << 24))).read()
    except (PickleError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(f"{file}: is damaged ({reason}); prepare the data again") from None
    pieces = found.get("stoi") if isinstance(found, dict) else None
    if not isinstance(pieces, dict) or not all(
        isinstance(piece, str) and len(piece) == 1 and type(place) is int and place >= 0
        for piece, place in pieces.items()
    ):
        raise ArtifactError(f"{file}: holds no characters and their ids; prepare the data again")
    return ByteVocabulary(pieces=pieces, merges=None, files=(file,))
