"""Tokenizers as the page's engine reads them: `engine/tokenizer.js`.

This is the allow-list: a part of a tokenizer that the engine does not know is refused by its name.
The engine's steps are fewer than the library's, whose parts are translated here:

- a tokenizer of `tokenizers` is lists of steps (normalizer, splitter, decoder) around a model;
- patterns of Oniguruma become JavaScript's, with the flag v.

Letters that are newer than the Unicode of a browser, or of the library, may be cut otherwise there:
of Oniguruma that is Unicode 16, and 12 for the accents of letters that BERT's models omit.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import normalizers, pre_tokenizers

from tformer_cli.errors import UsageError
from tformer_cli.text.foreign_pieces import (
    BytePieceTokenizer,
    LibraryTokenizer,
    WordPieceTokenizer,
)
from tformer_cli.text.joint_tokenizer import JointTokenizer
from tformer_cli.text.pieces import PieceSide
from tformer_cli.text.sentencepiece.spm_file import UNUSED
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceSide
from tformer_cli.text.tokenizer import (
    SPACES,
    SPECIAL_PIECES,
    UNK_ID,
    UNSEEN,
    Tokenizer,
    TokenizerSide,
)
from tformer_cli.text.vocabulary import BYTE_CHARACTERS, bytes_of
from tformer_cli.wording import SPACE_LABEL

Steps = list[dict[str, Any]]
# A part of the library's tokenizer as steps; None: it has a setting that the page does not know
Translation = Callable[[Mapping[str, Any]], Steps | None]
_ALPHABET = frozenset(BYTE_CHARACTERS)
N_SPECIAL = len(SPECIAL_PIECES)
# `\s` of Oniguruma and of Python's "White_Space"; JavaScript's lacks U+0085 and has U+FEFF
_SPACE_CLASS = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# What patterns may consist of; the two dialects agree on all of it but spaces
_KNOWN_SYNTAX = re.compile(
    r"(?:\\[pP]\{[LMN]\}|\\[sSrn]|\(\?[:!]|\[\^?|[\])| ’']|[A-Za-z]|(?:[*+?]|\{\d+,\d+\})(?![*+]))*"
)
# Only these endings: Oniguruma would also find "ß" by "ss"
_ANY_CASE = re.compile(r"\(\?i:((?:'(?:s|t|re|ve|m|ll|d)\|?)+)\)")
# Letters beyond ASCII that are forms of the same letter
_OTHER_CASES = {"s": "ſ", "k": "\u212a"}


def page_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns a tokenizer as the page's engine reads it: its source, and how its target differs.

    Raises:
        UsageError: The engine does not know a part of it, which the message names.
    """
    source = _read_side(tokenizer.source)
    if tokenizer.target is tokenizer.source:
        return {"source": source, "target": {}}
    target = _read_side(tokenizer.target)
    return {"source": source, "target": {k: v for k, v in target.items() if v != source.get(k)}}


def _refusal(what: str) -> UsageError:
    return UsageError(f"--format page: the page cannot compute {what}; use `tformer serve`")


def _read_side(side: TokenizerSide) -> dict[str, Any]:
    if isinstance(side, JointTokenizer):
        own = _joint(side)
    elif isinstance(side, SentencePieceSide):
        own = _sentencepiece(side)
    elif isinstance(side, PieceSide):
        own = _words(side)
    elif isinstance(side, LibraryTokenizer):
        own = _foreign(side)
    elif isinstance(side, BytePieceTokenizer | WordPieceTokenizer):
        own = _library(side, json.loads(side.library_json), range(side.vocab_size))
    else:
        raise _refusal(f"tokenizers of the kind {type(side).__name__}")
    return {**own, "start": side.start, "end": side.end}


def _joint(side: JointTokenizer) -> dict[str, Any]:
    content = json.loads(side.to_json())
    # the side that reads is another object than the one that writes
    is_cleaned = side.normalization == "nfc" and side.source is side
    cleaner = [_replace(SPACES, " "), _replace(UNSEEN, ""), {"type": "NFC"}]
    pieces = ["".join(BYTE_CHARACTERS[byte] for byte in f" {w}".encode()) for w in side.new_tokens]
    vocabulary = content["model"]["vocab"]
    content["added_tokens"] = []
    return _library(side, content, range(side.vocab_size)) | {
        "cleaner": cleaner if is_cleaned else [],
        "newTokens": [[w, vocabulary[p]] for w, p in zip(side.new_tokens, pieces, strict=True)],
    }


def _foreign(side: LibraryTokenizer) -> dict[str, Any]:
    content = json.loads(side.library_json)
    ours = {number: place for place, number in enumerate(side.foreign)}
    tokens = {token["id"]: token for token in content["added_tokens"]}
    for token in tokens.values():
        for setting in ("single_word", "lstrip", "rstrip"):
            if token[setting] and not token["special"]:
                raise _refusal(f"the setting {setting} of the token {token['content']}")
    own = _library(side, content, side.foreign)
    for place, number in enumerate(side.foreign):
        if number in tokens:
            own["names"][place] = tokens[number]["content"]
    normalizer = HuggingFaceTokenizer.from_str(side.library_json).normalizer
    added: dict[bool, list[Any]] = {False: [], True: []}
    for number, token in tokens.items():
        text = token["content"]
        if token["normalized"] and normalizer is not None:
            text = normalizer.normalize_str(text)
        added[token["normalized"]].append([text, None if token["special"] else ours[number]])
    return own | {"added": added[False], "addedNormalized": added[True]}


def _library(side: TokenizerSide, content: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """Translates a tokenizer of the library, given its id of each of ours."""
    model = content["model"]
    stored = model["vocab"]  # of "unigram" with scores
    pieces: list[tuple[str, int]] = (
        list(stored.items())
        if isinstance(stored, dict)
        else [(piece, number) for number, (piece, _) in enumerate(stored)]
    )
    piece_of = {number: piece for piece, number in pieces}
    names = [piece_of.get(number, "") for number in ids]
    splitter = _translate(content["pre_tokenizer"], _SPLITTERS, "pre-tokenizer")
    decoder = _translate(content["decoder"], _DECODERS, "decoder")
    is_total = _BYTES in splitter and _ALPHABET.issubset(piece_of.values())
    return {
        "kind": "library",
        "cleaner": [],
        "normalizer": _translate(content["normalizer"], _NORMALIZERS, "normalizer"),
        "splitter": splitter,
        "model": _model(model, names, is_total=is_total),
        "decoder": decoder,
        "names": names,
        "inBytes": _BYTES in decoder,
        "labels": _labels(side, list(map(_text, names)) if _BYTES in decoder else names),
        "silent": [n for n, text in enumerate(side.piece_bytes) if not text],
        "newTokens": [],
        "added": [],
        "addedNormalized": [],
        "unlisted": [place for place, number in enumerate(ids) if number not in piece_of],
    }


def _sentencepiece(side: SentencePieceSide) -> dict[str, Any]:
    model, vocabulary = side.file.model, side.vocabulary
    if vocabulary.new_tokens:
        raise _refusal("new tokens of an imported translation model")
    if model.algorithm == "bpe" and model.of_type(UNUSED):
        raise _refusal('unused pieces of a SentencePiece model of the kind "bpe"')
    texts = vocabulary.bytes
    silent = [n for n, text in enumerate(texts) if not text]
    in_bytes = [
        [n, text[0]]
        for n, (text, piece) in enumerate(zip(texts, vocabulary.pieces, strict=True))
        if len(text) == 1 and piece == f"<0x{text[0]:02X}>"
    ]
    spm = {
        "algorithm": model.algorithm,
        "pieces": model.pieces,
        # the shortest number that is the same in 32 bits
        "scores": [float(str(np.float32(score))) for score in model.scores],
        "types": "".join(map(str, model.types)),
        "byteFallback": model.byte_fallback,
        "charsmap": base64.b64encode(model.charsmap).decode(),
        "addsSpace": model.add_dummy_prefix,
        "trimsSpaces": model.remove_extra_whitespaces,
    }
    return {
        "kind": "sentencepiece",
        "names": vocabulary.pieces,
        "inBytes": False,
        "labels": _labels(side, vocabulary.pieces),
        "spm": spm,
        "ids": side.piece_ids,
        "silent": silent,
        "bytes": in_bytes,
        "tags": side.takes_tags,
        "prompts": [[prompt, side.encode_phrases([prompt])[0]] for prompt in side.prompts],
    }


def _words(side: PieceSide) -> dict[str, Any]:
    vocabulary, codes = side.vocabulary, side.codes
    merges = [] if codes is None else list(codes.ranks)
    made = {"".join(pair): place for place, pair in reversed([*enumerate(merges)])}
    for place, pair in enumerate(merges):
        # all pairs of a rank are joined first; the page joins the best pair, one by one
        if max(made.get(part, -1) for part in pair) >= place:
            raise _refusal(f"the merge {' '.join(pair)}, which stands before one that it needs")
    return {
        "kind": "words",
        "names": vocabulary.pieces,
        "inBytes": False,
        "labels": _labels(side, vocabulary.pieces),
        "merges": None if codes is None else merges,
        "endsApart": codes is not None and codes.ends_apart,
        "silent": [*range(N_SPECIAL)],
        "whole": list(vocabulary.new_tokens),
    }


def _text(name: str) -> str:
    is_bytes = _ALPHABET.issuperset(name)
    return bytes_of(name).decode(errors="replace") if is_bytes else name


def _labels(side: TokenizerSide, texts: Sequence[str]) -> dict[int, str]:
    """Finds the labels that are not the text with a sign for each space."""
    labels = enumerate(side.pieces(range(side.vocab_size)))
    return {n: label for n, label in labels if label != texts[n].replace(" ", SPACE_LABEL)}


def _model(model: Mapping[str, Any], names: Sequence[str], *, is_total: bool) -> dict[str, Any]:
    """Translates what cuts a word; `is_total` if each character of a word is a piece."""
    for setting in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(setting) and model["type"] != "WordPiece":
            raise _refusal(f"the tokenizer's {setting}")
    match model:
        case {"type": "BPE", "merges": merges, "byte_fallback": falls_back}:
            if not is_total and not (falls_back and {*_BYTE_NAMES} <= {*names}):
                raise _refusal("a tokenizer without pieces for all bytes")
            number = {name: place for place, name in enumerate(names)}
            pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in merges)
            flat = [number[piece] for pair in pairs for piece in pair]
            keeps = bool(model.get("ignore_merges"))
            return {"type": "BPE", "merges": flat, "namesBytes": not is_total, "keepsWords": keeps}
        case {"type": "Unigram", "vocab": vocabulary} if is_total and [
            piece for piece, _ in vocabulary
        ] == [*names]:
            return {"type": "Unigram", "scores": [score for _, score in vocabulary]}
        case {"type": "WordLevel", "unk_token": unknown} if unknown == names[UNK_ID]:
            return {"type": "WordLevel"}
        case {
            "type": "WordPiece",
            "unk_token": unknown,
            "max_input_chars_per_word": longest,
        } if unknown == names[UNK_ID]:
            prefix = model["continuing_subword_prefix"]
            return {"type": "WordPiece", "prefix": prefix, "longest": longest}
    raise _refusal(f"the tokenizer's model {model['type']}")


def _pattern(pattern: Mapping[str, str] | str) -> str:
    """Translates a pattern of the library to JavaScript's with the flag v."""
    if isinstance(pattern, str) or "String" in pattern:
        text = pattern if isinstance(pattern, str) else pattern["String"]
        return re.sub(r"[\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)
    text = pattern["Regex"]
    if text in (SPACES, UNSEEN):
        return text
    if not _KNOWN_SYNTAX.fullmatch(_ANY_CASE.sub(r"(?:\1)", text)):
        raise _refusal(f"the tokenizer's pattern {json.dumps(text, ensure_ascii=False)}")
    text = _ANY_CASE.sub(lambda match: f"(?:{_without_case(match[1])})", text)
    return text.replace(r"\s", f"[{_SPACE_CLASS}]").replace(r"\S", f"[^{_SPACE_CLASS}]")


def _without_case(pattern: str) -> str:
    def forms(match: re.Match[str]) -> str:
        letter = match[0].lower()
        return f"[{letter}{letter.upper()}{_OTHER_CASES.get(letter, '')}]"

    return re.sub("[A-Za-z]", forms, pattern)


def _replace(pattern: str, text: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "text": text}


def _split(pattern: str, *, removed: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "removed": removed}


def _translate(
    part: Mapping[str, Any] | None, known: Mapping[str, Translation], what: str
) -> Steps:
    """Translates a part of the library's tokenizer; a sequence is its parts, one by one."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        parts = next(value for name, value in part.items() if name != "type")
        return [step for inner in parts for step in _translate(inner, known, what)]
    steps = known[part["type"]](part) if part["type"] in known else None
    if steps is None:
        raise _refusal(f"the tokenizer's {what} {json.dumps(part, ensure_ascii=False)}")
    return steps


def _byte_level(part: Mapping[str, Any]) -> Steps | None:
    if part["add_prefix_space"]:
        return None
    return [*([_split(_pattern({"Regex": _GPT2_WORDS}))] if part["use_regex"] else []), _BYTES]


def _split_step(part: Mapping[str, Any]) -> Steps | None:
    if part["behavior"] != "Isolated" or part["invert"]:
        return None
    return [_split(_pattern(part["pattern"]))]


def _metaspace(part: Mapping[str, Any]) -> Steps:
    names = {"replacement": "mark", "prepend_scheme": "prepends", "split": "splits"}
    return [{"type": "Metaspace", **{ours: part[theirs] for theirs, ours in names.items()}}]


def _bert(part: Mapping[str, Any]) -> Steps:
    steps: Steps = []
    if part["clean_text"]:
        cleaned = normalizers.BertNormalizer(
            handle_chinese_chars=False, strip_accents=False, lowercase=False
        )
        controls = _class_of(lambda character: not cleaned.normalize_str(character))
        steps += [_replace(rf"{controls}|\p{{Co}}", ""), _replace(_SPACE, " ")]
    if part["handle_chinese_chars"]:
        steps.append({"type": "Surround", "pattern": _CHINESE})
    if part["strip_accents"] or (part["strip_accents"] is None and part["lowercase"]):
        stripped = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
        )
        marks = _class_of(lambda character: not stripped.normalize_str(character))
        steps += [{"type": "NFD"}, _replace(marks, "")]
    return [*steps, {"type": "Lowercase"}] if part["lowercase"] else steps


def _split_bert() -> Steps:
    words = pre_tokenizers.BertPreTokenizer()
    punctuation = _class_of(lambda character: len(words.pre_tokenize_str(f"x{character}x")) == 3)
    return [_split(_SPACE, removed=True), _split(punctuation)]


def _class_of(is_in: Callable[[str], bool]) -> str:
    """Lists characters as the library knows them: its Unicode is years older than a browser's."""
    ends = [0xD7FF, 0x1FFFF, 0xE01EF]
    numbers = [
        n
        for first, last in zip([0, 0xE000, 0xE0000], ends)
        for n in range(first, last + 1)
        if is_in(chr(n))
    ]
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return "[" + "".join(f"\\u{{{first:x}}}-\\u{{{last:x}}}" for first, last in ranges) + "]"


_BYTES = {"type": "Bytes"}
_BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
_SPACE = f"[{_SPACE_CLASS}]"
_CHINESE = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}"
    r"\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]"
)
_NORMALIZERS: Mapping[str, Translation] = {
    "NFC": lambda part: [{"type": part["type"]}],  # of the others the library knows fewer letters
    "Prepend": lambda part: [{"type": "Prepend", "text": part["prepend"]}],
    "Replace": lambda part: [_replace(_pattern(part["pattern"]), part["content"])],
    "Lowercase": lambda part: [{"type": part["type"]}],
    "BertNormalizer": _bert,
}
_SPLITTERS: Mapping[str, Translation] = {
    "Split": _split_step,
    "ByteLevel": _byte_level,
    "Metaspace": _metaspace,
    "WhitespaceSplit": lambda _: [_split(_SPACE, removed=True)],
    "BertPreTokenizer": lambda _: _split_bert(),
    "Digits": lambda part: [_split(r"\p{N}" if part["individual_digits"] else r"\p{N}+")],
}
_DECODERS: Mapping[str, Translation] = {
    "ByteLevel": lambda _: [_BYTES],
    "ByteFallback": lambda _: [{"type": "ByteNames"}],
    "Fuse": lambda _: [{"type": "Fuse"}],
    "Metaspace": _metaspace,
    "Replace": lambda part: [_replace(_pattern(part["pattern"]), part["content"])],
    "Strip": lambda part: (
        None
        if part["stop"]
        else [{"type": "Strip", "text": part["content"], "most": part["start"]}]
    ),
    "WordPiece": lambda part: [
        {"type": "WordPiece", "prefix": part["prefix"], "cleans": part["cleanup"]}
    ],
}
