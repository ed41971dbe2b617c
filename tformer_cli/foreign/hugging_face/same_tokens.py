"""A tokenizer.json next to the tokenizer that was made of its directory: both must cut texts alike.

A table can say which settings are known, but not that a SentencePiece model, or the classes here,
cut text as all of them together do. So the library that reads the file is asked for the tokens of
some texts, and of all pieces in twos, which its merges and scores decide.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import UNUSED, original_piece
from tformer_cli.foreign.keys import read_text
from tformer_cli.text.joint_tokenizer import parse_library
from tformer_cli.text.sentencepiece.spm_file import SPACE
from tformer_cli.text.tokenizer import UNK_ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tformer_cli.text.tokenizer import Tokenizer

# words, runs of spaces, digits, marks, accents, and characters that few vocabularies have
TEXTS = (
    "the old  house is green, isn't it?",
    "A b c d e f g h i j k l m n o p q r s t u v w x y z",
    "In 1234.5 (see SOME) naïve café: a-b/c",
    "x 漢字🙂 y 🙂z",
)
SENTINEL = re.compile(r"<extra_id_\d{1,4}>")
_SENTINEL_TEXTS = ("{0}. b", "a {0}. b {0}", "a {0} b{0}c")
# rare characters in pieces are changed in other orders by the two programs
_SMALL_SHARE = 1e-3
_MOST_PIECES = 1 << 17


def check_tokens(
    file: Path, tokenizer: Tokenizer, ids: Sequence[int], *, lowercase: bool, writes: bool
) -> list[str]:
    """Refuses a tokenizer.json that gives texts other tokens, or tokens other texts; returns notes.

    Args:
        file: a tokenizer.json, which need not exist.
        tokenizer: what was made of its directory.
        ids: the id there of each id here.
        lowercase: texts are lower-cased before they are cut.
        writes: the model writes texts.
    """
    side = tokenizer.target
    pieces = [original_piece(piece) for piece in side.pieces(range(len(ids)))]
    sentinels = [name for name in (p.strip(SPACE) for p in pieces) if SENTINEL.fullmatch(name)][:1]
    note = [
        f"a text continues after {name} without a space, as in seqio; transformers puts one there"
        for name in sentinels
    ]
    if not file.is_file():
        return note
    library = _Library(file, lowercase=lowercase)
    library.check_around()

    def cut(texts: Sequence[str]) -> list[list[int]]:
        return [[ids[n] for n in row] for row in side.encode_phrases(texts)]

    sentinel_texts = [text.format(*sentinels) for text in (_SENTINEL_TEXTS if sentinels else ())]
    if cut(sentinel_texts) != library.cut(sentinel_texts):
        spaced = [text.replace(name, f" {name} ") for text in sentinel_texts for name in sentinels]
        library.check(sentinel_texts, cut(spaced))
    else:
        note = []
    library.check(TEXTS, cut(TEXTS))
    words = [piece.replace(SPACE, " ").strip(" ") for piece in pieces if UNUSED not in piece]
    texts = [
        first + second
        for first, second in pairwise([*words[:_MOST_PIECES], ""])
        if not library.has_added(first + second)
    ]
    pairs = zip(texts, cut(texts), library.cut(texts), strict=True)
    others = [text for text, ours, theirs in pairs if ours != theirs]
    if len(others) > _SMALL_SHARE * len(texts):
        shown = json.dumps(others[0], ensure_ascii=False)[:60]
        raise _differs(file, f"cuts {len(others):,} of {len(texts):,} texts, {shown} for one,")
    known = [row for row in side.encode_phrases([*TEXTS, *texts[:32]]) if UNK_ID not in row]
    for row in known if writes and library.tokenizer.decoder is not None else ():
        text = side.decode(row)
        if library.decode([ids[n] for n in row]) != text.strip():
            raise _differs(file, f"writes {json.dumps(text, ensure_ascii=False)[:60]}")
    return note


class _Library:
    """The tokenizer of a file, as its own library reads it."""

    def __init__(self, file: Path, *, lowercase: bool) -> None:
        self.file, self._lowercase = file, lowercase
        self.tokenizer = parse_library(read_text(file), str(file))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        added = self.tokenizer.get_added_tokens_decoder().values()
        self._added = {token.content for token in added}

    def has_added(self, text: str) -> bool:
        return any(token in text for token in self._added)

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        texts = [text.lower() if self._lowercase else text for text in texts]
        try:
            return [row.ids for row in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        except Exception as error:  # noqa: BLE001 - the library has no class of its own
            reason = " ".join(str(error).split())[:200]
            raise ArtifactError(f"{self.file}: is damaged ({reason}); download it again") from None

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False)).strip()

    def check(self, texts: Sequence[str], expected: Sequence[Sequence[int]]) -> None:
        for text, ours, theirs in zip(texts, expected, self.cut(texts), strict=True):
            if ours != theirs:
                raise _differs(self.file, f"cuts {json.dumps(text, ensure_ascii=False)}")

    def check_around(self) -> None:
        """Refuses tokens around a text that have the ids of other tokens."""
        self.cut(TEXTS)  # which a damaged file cannot
        encoding = self.tokenizer.encode(TEXTS[0])
        for token, number in zip(encoding.tokens, encoding.ids, strict=True):
            if (own := self.tokenizer.token_to_id(token)) not in (None, number):
                raise ArtifactError(
                    f"{self.file}: post_processor gives {json.dumps(token)} the id {number}, but "
                    f"it has the id {own}; use this model's own files"
                )


def _differs(file: Path, how: str) -> ArtifactError:
    return ArtifactError(
        f"{file}: {how} differently from tformer, so one of its settings is not supported, or "
        "the files next to it are another model's; import another model"
    )
