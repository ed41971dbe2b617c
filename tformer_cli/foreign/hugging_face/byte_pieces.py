"""Vocabularies of language models and of encoders: GPT-2's files, and those of BERT's family.

GPT-2's are tokenizer.json, vocab.json and merges.txt, or nanoGPT's list of characters. RoBERTa's
files are the same with other special tokens, Qwen2's with another pattern of words; BERT has a
tokenizer.json or vocab.txt. The model, not tokenizer.json, decides truncation and padding.
Sources: transformers 5.23, models/gpt2/tokenization_gpt2.py, models/qwen2/tokenization_qwen2.py;
nanoGPT, data/shakespeare_char/prepare.py.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    MOST_ROWS,
    UNUSED,
    VocabularyOrder,
    names_of_rows,
    reorder_vocabulary,
)
from tformer_cli.foreign.formats.pickles import PickleError, PickleReader
from tformer_cli.foreign.hugging_face.keys import (
    ROLES,
    TOKENIZER,
    TOKENIZER_CONFIGS,
    WHOLE_TOKENIZERS,
    added_of,
    added_tokens,
    check_added,
    check_class,
    check_surrounding,
    parts_of,
    read_tokenizer_files,
    surrounding,
)
from tformer_cli.foreign.keys import (
    quote,
    read_bytes,
    read_json_file,
    read_lines,
    unsupported_error,
)
from tformer_cli.text.foreign_pieces import (
    NAMES,
    PREFIX,
    QWEN2_WORDS,
    BytePieceTokenizer,
    LibraryTokenizer,
    WordPieceTokenizer,
    WordRules,
)
from tformer_cli.text.joint_tokenizer import UNKNOWN_PIECE, blank_tokenizer
from tformer_cli.text.tokenizer import (
    EOS_ID,
    SPECIAL_PIECES,
    UNK_ID,
    Tokenizer,
    parse_tokenizer,
)

END = "<|endoftext|>"
# tokens around the turns of chats with Qwen2; in texts here they are text
_TURNS = {"<|im_start|>", "<|im_end|>"}
_LARGEST_MERGES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class ByteVocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Mapping[str, int]
    # merges of BPE on bytes; None: a pipeline without merges makes the pieces
    merges: tuple[tuple[str, str], ...] | None
    files: tuple[Path, ...]
    algorithm: Literal["char", "word"] = "char"
    words: str = "gpt2"  # see `BytePieceTokenizer`
    notes: tuple[str, ...] = ()

    @property
    def end(self) -> int | None:
        return self.pieces.get(END)

    @property
    def texts(self) -> dict[str, bool]:
        """Settings of the model: texts begin with their first token."""
        return {"target_bos": False, "target_eos": self.end is not None}

    def rows(self, size: int, where: str) -> VocabularyOrder:
        return _order_rows(names_of_rows(self.pieces, size, where), -1, self.end, self.end)

    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer:
        if self.merges is not None:
            return BytePieceTokenizer(rows.pieces, self.merges, where, words=self.words)
        blank = blank_tokenizer(self.algorithm)
        places = {piece: place for place, piece in enumerate(rows.pieces)}
        blank.model = type(blank.model)(vocab=places, unk_token=UNKNOWN_PIECE)
        blank.add_special_tokens(list(SPECIAL_PIECES))
        return parse_tokenizer(blank.to_str(), where)


def _order_rows(
    names: Sequence[str], unknown: int, start: int | None, end: int | None
) -> VocabularyOrder:
    """Orders the rows of a language model, which never writes those without a piece."""
    rows = reorder_vocabulary(names, None, unknown, start, end)
    unused = [n for n, name in enumerate(rows.pieces) if name.startswith(UNUSED)]
    ends = [] if end is not None else [EOS_ID]
    return VocabularyOrder(rows.foreign, rows.pieces, (*rows.banned, UNK_ID, *ends, *unused))


def read_vocabulary(path: Path, words: str = "gpt2") -> ByteVocabulary:
    vocabulary = find_vocabulary(path, words)
    if vocabulary is None:
        raise ArtifactError(
            f"{path}: has no vocabulary; put vocab.json and merges.txt, or nanoGPT's meta.pkl, "
            "next to the model"
        )
    return vocabulary


def with_tokenizer_files(
    path: Path, vocabulary: ByteVocabulary, named: object = None
) -> ByteVocabulary:
    """Adds the settings of the files next to a vocabulary; `named` is the class in config.json."""
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["gpt2"])
    known = {END, *(str(own[role]) for role in ROLES if role in own)}
    added, pieces = added_tokens(path, own), dict(vocabulary.pieces)
    if vocabulary.words == "qwen2":
        known |= _TURNS
        # its vocab.json has no special tokens
        pieces |= {token: place for token, place in added.items() if place is not None}
    check_added(path, added, vocabulary.pieces, known)
    own_class = {"gpt2": "GPT2", "qwen2": "Qwen2"}[vocabulary.words]
    check_class(path, own.get("tokenizer_class") or named, own_class)
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
        vocabulary = _read_whole(whole, words)
        if listed is not None:
            _check_same(whole, vocabulary, listed)
        return vocabulary
    if listed is not None:
        return listed
    characters = path / "meta.pkl"
    return _read_characters(characters) if characters.is_file() else None


def _read_whole(file: Path, words: str) -> ByteVocabulary:
    parts = read_json_file(file)
    if words != "library" and not isinstance(parts.get("pre_tokenizer"), dict):
        raise ArtifactError(
            f"{file}: has no pre_tokenizer, but GPT-2 cuts text into words; import another model"
        )
    notes = WHOLE_TOKENIZERS[words].read(file, parts)
    if words == "qwen2" and _steps({**parts, "normalizer": None}) != [QWEN2_WORDS, "ByteLevel"]:
        raise ArtifactError(
            f"{file}: pre_tokenizer does not cut text as Qwen2 does; import another model"
        )
    model = parts.get("model")
    model = model if isinstance(model, dict) else {}
    merges = model.get("merges", [])
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    vocabulary = _vocabulary(model.get("vocab"), pairs, (file,), words)
    pieces = {**vocabulary.pieces, **added_of(parts, file)}
    return replace(vocabulary, pieces=pieces, notes=tuple(notes))


def _check_same(file: Path, whole: ByteVocabulary, listed: ByteVocabulary) -> None:
    """Refuses a tokenizer.json next to a vocab.json and merges.txt of another tokenizer."""
    other = next(
        (piece for piece, n in listed.pieces.items() if whole.pieces.get(piece) != n), None
    )
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
        content = PickleReader(io.BytesIO(read_bytes(file, 1 << 24))).read()
    except (PickleError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(f"{file}: is damaged ({reason}); prepare the data again") from None
    pieces = content.get("stoi") if isinstance(content, dict) else None
    if not isinstance(pieces, dict) or not all(
        isinstance(piece, str) and len(piece) == 1 and type(place) is int and place >= 0
        for piece, place in pieces.items()
    ):
        raise ArtifactError(f"{file}: holds no characters and their ids; prepare the data again")
    return ByteVocabulary(pieces=pieces, merges=None, files=(file,))


@dataclass(frozen=True, kw_only=True)
class LibraryVocabulary:
    """A tokenizer.json that the library itself computes, and the ids that texts begin and end with.

    Texts without a token before them begin with their first, as those of GPT-2 do.
    """

    content: Mapping[str, Any]
    pieces: Mapping[str, int]
    ends: tuple[int | None, int | None]
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def texts(self) -> dict[str, bool]:
        return {"target_bos": self.ends[0] is not None, "target_eos": self.ends[1] is not None}

    def rows(self, size: int, where: str) -> VocabularyOrder:
        names = names_of_rows(self.pieces, size, where)
        start, end = self.ends
        unknown = self.pieces.get(str(self.content["model"].get("unk_token")), -1)
        return _order_rows(names, unknown, end if start is None else start, end)

    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer:  # noqa: ARG002 - as others have it
        return LibraryTokenizer(self.content, rows.foreign, rows.pieces, str(self.files[0]))


# steps of texts of the library's classes
_CLASS_STEPS = {
    "GPT2Tokenizer": ["ByteLevel"],
    "GPTNeoXTokenizer": ["NFC", "ByteLevel"],
    "LlamaTokenizer": ["Metaspace"],
    "Qwen2Tokenizer": ["NFC", QWEN2_WORDS, "ByteLevel"],
}
_ANY_CLASS = ("None", "PreTrainedTokenizer", "TokenizersBackend")


def read_library_vocabulary(
    path: Path, settings: Mapping[str, Any], end: int | None
) -> LibraryVocabulary:
    """Reads a tokenizer.json; the files next to it must agree."""
    file = path / TOKENIZER
    content = read_json_file(file)
    own, more, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["library"])
    named = str(own.get("tokenizer_class") or settings.get("tokenizer_class")).removesuffix("Fast")
    is_qwen2 = settings.get("model_type") == "qwen2"
    is_strict = named == "Qwen2Tokenizer" or (named == "None" and is_qwen2)
    vocabulary = find_vocabulary(path, "qwen2" if is_strict else "library")
    more += _compare_steps(_steps(content), named, is_qwen2=is_qwen2)
    pieces = {} if vocabulary is None else vocabulary.pieces
    check_added(path, added_tokens(path, own), pieces, pieces)
    before, behind = surrounding(file, content.get("post_processor"))
    if behind or len(before) > 1 or not pieces.keys() >= {*before}:
        check_surrounding(file, content, (), ())
    if own.get("add_bos_token", bool(before)) not in (None, bool(before)):
        raise ArtifactError(
            f"{path}: tokenizer_config.json says add_bos_token = {quote(own['add_bos_token'])}, "
            f"but post_processor of {TOKENIZER} puts {quote([*before])} before a text; correct "
            "one of the two"
        )
    has_space = _puts_space(content)
    if own.get("add_prefix_space", has_space) not in (None, has_space):
        raise ArtifactError(
            f"{path}: tokenizer_config.json says add_prefix_space = "
            f"{quote(own['add_prefix_space'])}, but {TOKENIZER} has {quote(has_space)}; correct "
            "one of the two"
        )
    return LibraryVocabulary(
        content=content,
        pieces=pieces,
        ends=(pieces[before[0]] if before else None, end),
        files=(file, *files),
        notes=(*(vocabulary.notes if vocabulary is not None else ()), *more),
    )


def _compare_steps(steps: Sequence[str], named: str, *, is_qwen2: bool) -> list[str]:
    """Returns a note if version 5 of the library, which rebuilds a class's steps, has others."""
    if is_qwen2 and named in _ANY_CLASS:
        named = "Qwen2Tokenizer"  # the library's choice
    elif named == "LlamaTokenizer" and "ByteLevel" in steps:
        return []  # which it reads from the file
    if steps == _CLASS_STEPS.get(named, steps):
        return []
    note = f"texts are cut as {TOKENIZER} says; with tokenizer_class = {named} version 5 of the "
    return [f"{note}library cuts some otherwise"]


def _steps(content: Mapping[str, Any]) -> list[str]:
    """Lists the steps by which a tokenizer.json cuts texts: their patterns, or else types."""
    parts = [*parts_of(content.get("normalizer")), *parts_of(content.get("pre_tokenizer"))]
    patterns = [part["pattern"] if isinstance(part.get("pattern"), dict) else {} for part in parts]
    steps = [
        str(more.get("Regex", part["type"])) for part, more in zip(parts, patterns, strict=True)
    ]
    return [step for step in steps if step != "Sequence"]


def _puts_space(content: Mapping[str, Any]) -> bool:
    """Returns whether a tokenizer.json puts a space before texts."""
    parts = [*parts_of(content.get("normalizer")), *parts_of(content.get("pre_tokenizer"))]
    return any(
        part.get("type") == "Prepend"
        or part.get("prepend_scheme") in ("always", "first")
        or part.get("add_prefix_space") is True
        for part in parts
    )


# settings that name the special tokens, in tformer's order; the mask is last
ENCODER_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_NO_LIMIT = 1 << 24  # above it a largest length says that there is none
_WORD_NAMES = (*NAMES, "[MASK]")
_CLASSES = {True: ("Bert", "DistilBert", "Electra"), False: ("Roberta",)}  # of words, of bytes
_BYTE_NAMES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")


@dataclass(frozen=True, kw_only=True)
class EncoderVocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Mapping[str, int]
    special: tuple[str, ...]  # pieces of padding, unknown, beginning, end and gap
    rules: WordRules | None  # how text becomes words; None: BPE on bytes
    merges: tuple[tuple[str, str], ...]
    files: tuple[Path, ...]
    # tokens of the longest text, which sentence-transformers cuts off; 0: no file says it
    longest: int = 0
    notes: tuple[str, ...] = ()

    def rows(self, size: int, where: str) -> VocabularyOrder:
        names = names_of_rows(self.pieces, size, where)
        missing = [name for name in self.special[:4] if name not in self.pieces]
        if missing:
            raise ArtifactError(
                f"{self.files[0]}: has no piece {missing[0][:40]}; use this model's own files"
            )
        pad, unk, start, end = (self.pieces[name] for name in self.special[:4])
        return reorder_vocabulary(names, pad, unk, start, end)

    def tokenizer(self, rows: VocabularyOrder, where: str) -> Tokenizer:
        mask = self.special[4] if self.special[4] in self.pieces else ""
        if self.rules is not None:
            return WordPieceTokenizer(rows.pieces, self.rules, mask, where)
        if not mask:
            raise ArtifactError(
                f"{self.files[0]}: has no piece {self.special[4][:40]}; use this model's own files"
            )
        return BytePieceTokenizer(rows.pieces, self.merges, where, mask)


def read_encoder_vocabulary(
    path: Path, named: object = None, *, lowercase: bool
) -> EncoderVocabulary:
    """Reads the tokenizer's files of a directory, whose config.json has a `named` class.

    Where there is a tokenizer.json, it counts, and the other files must agree with it.
    """
    whole, words, numbered = (path / name for name in (TOKENIZER, "vocab.txt", "vocab.json"))
    settings, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIGS["bert"])
    parts = read_json_file(whole) if whole.is_file() else {}
    model = parts.get("model")
    is_words = isinstance(model, dict) and model.get("type") == "WordPiece"
    rules, merges = None, cast("tuple[tuple[str, str], ...]", ())
    if is_words or (words.is_file() and not whole.is_file()):
        special = _special(settings, _WORD_NAMES)
        if is_words:
            pieces, rules, more = _read_whole_words(whole, parts)
            notes += more
            _check_agrees(path, settings, rules, pieces, words)
        else:
            pieces, rules = _read_words(words, settings)
        read = [whole if is_words else words]
        if lowercase and not rules.lowercase:
            rules = WordRules(**{**vars(rules), "lowercase": True})
    elif lowercase:
        raise ArtifactError(f"{path}: do_lower_case = true is not supported; import another model")
    else:
        bytes_of = find_vocabulary(path) if whole.is_file() or numbered.is_file() else None
        if bytes_of is None or bytes_of.merges is None:
            raise ArtifactError(
                f"{path}: has no tokenizer; put tokenizer.json, vocab.txt, or vocab.json and "
                "merges.txt next to the model"
            )
        special = _special(settings, _BYTE_NAMES)
        pieces, merges, read = dict(bytes_of.pieces), bytes_of.merges, [*bytes_of.files]
        notes += bytes_of.notes
    check_class(path, settings.get("tokenizer_class") or named, *_CLASSES[rules is not None])
    if whole.is_file():
        check_surrounding(whole, parts, special[2:3], special[3:4])
    added = added_tokens(path, settings)
    unused = (name for name in added if name.startswith("[unused"))
    known = {*special, *unused, *(str(settings.get(role)) for role in ENCODER_ROLES)}
    check_added(path, added, pieces, known)
    pieces |= {token: place for token, place in added.items() if place is not None}
    longest = settings.get("model_max_length", settings.get("max_len"))
    return EncoderVocabulary(
        pieces=pieces,
        special=special,
        rules=rules,
        merges=merges,
        files=(*read, *files),
        longest=longest if type(longest) is int and longest < _NO_LIMIT else 0,
        notes=tuple(notes),
    )


def _check_agrees(
    path: Path,
    settings: Mapping[str, Any],
    rules: WordRules,
    pieces: Mapping[str, int],
    words: Path,
) -> None:
    """Refuses files next to a tokenizer.json that contradict it."""
    for name, own in (
        ("do_lower_case", rules.lowercase),
        ("strip_accents", rules.strip_accents),
        ("tokenize_chinese_chars", rules.chinese),
    ):
        if settings.get(name, own) != own:
            raise ArtifactError(
                f"{path}: tokenizer_config.json says {name} = {quote(settings[name])}, but "
                f"{TOKENIZER} has {quote(own)}; correct one of the two"
            )
    listed = _list_pieces(words) if words.is_file() else {}
    other = next((name for name, place in listed.items() if pieces.get(name) != place), None)
    if other is not None:
        raise ArtifactError(
            f"{words}: gives {ascii(other)[:60]} another id than {TOKENIZER}; use the files of one "
            "tokenizer"
        )


def _special(settings: Mapping[str, Any], default: tuple[str, ...]) -> tuple[str, ...]:
    names = []
    for role, name in zip(ENCODER_ROLES, default, strict=True):
        token = settings.get(role, name)
        token = token.get("content") if isinstance(token, dict) else token
        names.append(token if isinstance(token, str) else name)
    return tuple(names)


def _normalizer_steps(parts: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """The parts of a normalizer of a kind."""
    normalizer = parts.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    return [step for step in steps if step.get("type") == kind]


def _read_whole_words(
    file: Path, parts: Mapping[str, Any]
) -> tuple[dict[str, int], WordRules, list[str]]:
    """Reads a tokenizer.json that cuts text as BERT does; the last are notes."""
    notes = WHOLE_TOKENIZERS["bert"].read(file, parts)
    if len(_normalizer_steps(parts, "BertNormalizer")) != 1 or "pre_tokenizer" not in parts:
        raise ArtifactError(
            f"{file}: has no normalizer or pre_tokenizer, but BERT cuts text into words; import "
            "another model"
        )
    model, (normalizer,) = parts["model"], _normalizer_steps(parts, "BertNormalizer")
    pieces = {**model["vocab"], **added_of(parts, file)}
    if not all(type(place) is int and place >= 0 for place in pieces.values()):
        raise ArtifactError(f"{file}: has ids that are not whole numbers; download it again")
    lowercase = bool(normalizer.get("lowercase", True))
    # Some of the library's classes drop it
    if not lowercase and _normalizer_steps(parts, "Lowercase"):
        raise unsupported_error(file, "normalizer.type", "Lowercase")
    strips = normalizer.get("strip_accents")
    rules = WordRules(
        lowercase=lowercase,
        strip_accents=lowercase if strips is None else bool(strips),
        chinese=bool(normalizer.get("handle_chinese_chars", True)),
        clean=bool(normalizer.get("clean_text", True)),
        longest_word=int(model.get("max_input_chars_per_word", 100)),
    )
    return pieces, rules, notes


def _list_pieces(file: Path) -> dict[str, int]:
    """The pieces of a vocab.txt with their lines."""
    names = read_lines(file)
    while names and not names[-1]:
        names.pop()
    return {name: place for place, name in enumerate(names)}


def _read_words(file: Path, settings: Mapping[str, Any]) -> tuple[dict[str, int], WordRules]:
    """Reads a vocab.txt, one piece per line.

    Where no file says it, text is lower-cased if no piece has a capital letter. Without pieces for
    the inside of words, words are separated by spaces only.
    """
    pieces = _list_pieces(file)
    special = _special(settings, _WORD_NAMES)
    plain = [name for name in pieces if name not in special and not name.startswith("[unused")]
    has_capitals = any(name != name.lower() for name in plain)
    lowercase = settings.get("do_lower_case")
    is_small = lowercase if isinstance(lowercase, bool) else not has_capitals
    strips = settings.get("strip_accents")
    rules = WordRules(
        lowercase=is_small,
        strip_accents=strips if isinstance(strips, bool) else is_small,
        chinese=settings.get("tokenize_chinese_chars", True) is True,
        between_spaces=not any(name.startswith(PREFIX) for name in plain),
    )
    return pieces, rules
