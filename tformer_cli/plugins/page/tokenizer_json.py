"""Tokenizers as the page's engine reads them: `engine/tokenizer.js`.

This is the allow-list: a part of a tokenizer that the engine does not know is refused by its name.
The engine's steps are fewer than the library's, whose parts are translated here:

- a tokenizer of `tokenizers` is lists of steps (normalizer, splitter, decoder) around a model;
- patterns of Oniguruma become JavaScript's, with the flag v.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tformer_cli.errors import UsageError
from tformer_cli.text.joint_tokenizer import JointTokenizer
from tformer_cli.text.sentencepiece.spm_file import UNUSED
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceSide
from tformer_cli.text.tokenizer import (
    SPACES,
    SPECIAL_PIECES,
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
    r"(?:\\[pP]\{[LMN]\}|\\[sSrn]|\(\?[:!]|\[\^?|[\])|?*+ ’']|\{\d+,\d+\}|[A-Za-z])*"
)
_ANY_CASE = re.compile(r"\(\?i:([^()]*)\)")
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
    return _library(side, content, range(side.vocab_size), {*range(N_SPECIAL)}) | {
        "cleaner": cleaner if is_cleaned else [],
        "newTokens": [[w, vocabulary[p]] for w, p in zip(side.new_tokens, pieces, strict=True)],
    }


def _library(
    side: TokenizerSide, content: Mapping[str, Any], ids: Sequence[int], silent: set[int]
) -> dict[str, Any]:
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
    decoder = _translate(content["decoder"], _DECODERS, "decoder")
    in_bytes = {"type": "Bytes"} in decoder
    return {
        "kind": "library",
        "cleaner": [],
        "normalizer": _translate(content["normalizer"], _NORMALIZERS, "normalizer"),
        "splitter": _translate(content["pre_tokenizer"], _SPLITTERS, "pre-tokenizer"),
        "model": _model(model, names),
        "decoder": decoder,
        "names": names,
        "inBytes": in_bytes,
        "labels": _labels(side, [_text(name) if in_bytes else name for name in names]),
        "silent": sorted(silent),
        "newTokens": [],
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


def _text(name: str) -> str:
    is_bytes = _ALPHABET.issuperset(name)
    return bytes_of(name).decode(errors="replace") if is_bytes else name


def _labels(side: TokenizerSide, texts: Sequence[str]) -> dict[int, str]:
    """Finds the labels that are not the text with a sign for each space."""
    labels = enumerate(side.pieces(range(side.vocab_size)))
    return {n: label for n, label in labels if label != texts[n].replace(" ", SPACE_LABEL)}


def _model(model: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    match model:
        case {"type": "BPE", "dropout": None, "unk_token": None, "merges": merges}:
            for setting in ("continuing_subword_prefix", "end_of_word_suffix"):
                if model.get(setting):
                    raise _refusal(f"the tokenizer's {setting}")
            number = {name: place for place, name in enumerate(names)}
            pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in merges)
            flat = [number[piece] for pair in pairs for piece in pair]
            return {"type": "BPE", "merges": flat, "keepsWords": bool(model.get("ignore_merges"))}
        case {"type": "WordLevel"}:
            return {"type": "WordLevel"}
    raise _refusal(f"the tokenizer's model {model.get('type')}")


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


_BYTES = {"type": "Bytes"}
_NORMALIZERS: Mapping[str, Translation] = {
    **{form: lambda part: [{"type": part["type"]}] for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "Prepend": lambda part: [{"type": "Prepend", "text": part["prepend"]}],
    "Replace": lambda part: [_replace(_pattern(part["pattern"]), part["content"])],
}
_SPLITTERS: Mapping[str, Translation] = {"Split": _split_step, "ByteLevel": _byte_level}
_DECODERS: Mapping[str, Translation] = {
    "ByteLevel": lambda _: [_BYTES],
    "Fuse": lambda _: [{"type": "Fuse"}],
    "Strip": lambda part: (
        None
        if part["stop"]
        else [{"type": "Strip", "text": part["content"], "most": part["start"]}]
    ),
}
