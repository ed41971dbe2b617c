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
    file: Path, tokenizer: Tokenizer, ids: Sequence[int], *, lowercase: bool = False
) -> list[str]:
    """Refuses a tokenizer.json that gives texts other tokens; the notes tell of small differences.

    Args:
        file: a tokenizer.json, which need not exist.
        tokenizer: what was made of its directory.
        ids: the id there of each id here.
        lowercase: texts are made small before they are cut.
    """
    pieces = [original_piece(piece) for piece in tokenizer.target.pieces(range(len(ids)))]
    sentinels = [name for name in (p.strip(SPACE) for p in pieces) if SENTINEL.fullmatch(name)][:1]
    note = [
        f"a text goes on behind {name} without a space, as in seqio; transformers puts one there"
        for name in sentinels
    ]
    if not file.is_file():
        return note
    theirs = parse_library(read_text(file), str(file))
    theirs.no_truncation()
    theirs.no_padding()

    def cut_by_ours(texts: Sequence[str]) -> list[list[int]]:
        return [[ids[n] for n in row] for row in tokenizer.target.encode_phrases(texts)]

    def cut_by_theirs(texts: Sequence[str]) -> list[list[int]]:
        texts = [text.lower() if lowercase else text for text in texts]
        try:
            return [row.ids for row in theirs.encode_batch(texts, add_special_tokens=False)]
        except Exception as error:  # noqa: BLE001 - the library has no class of its own
            reason = " ".join(str(error).split())[:200]
            raise ArtifactError(f"{file}: is damaged ({reason}); download it again") from None

    asked = [text.format(*sentinels) for text in (_SENTINEL_TEXTS if sentinels else ())]
    if cut_by_ours(asked) == cut_by_theirs(asked):
        note = []
    spaced = [text.replace(name, f" {name} ") for text in asked for name in sentinels]
    around = theirs.encode(TEXTS[0])
    for token, number in zip(around.tokens, around.ids, strict=True):
        if theirs.token_to_id(token) not in (None, number):
            raise ArtifactError(
                f"{file}: post_processor gives {json.dumps(token)} the id {number}, but it has "
                f"the id {theirs.token_to_id(token)}; use this model's own files"
            )
    for text, ours, other in zip(
        [*TEXTS, *(asked if note else ())],
        cut_by_ours([*TEXTS, *(spaced if note else ())]),
        cut_by_theirs([*TEXTS, *(asked if note else ())]),
        strict=True,
    ):
        if ours != other:
            raise _differs(file, f"{json.dumps(text, ensure_ascii=False)} otherwise")
    words = [piece.replace(SPACE, " ").strip(" ") for piece in pieces if UNUSED not in piece]
    added = {token.content for token in theirs.get_added_tokens_decoder().values()}
    texts = [
        first + second
        for first, second in pairwise([*words[:_MOST_PIECES], ""])
        if not any(token in first + second for token in added)
    ]
    pairs = zip(texts, cut_by_ours(texts), cut_by_theirs(texts), strict=True)
    others = [text for text, ours, other in pairs if ours != other]
    if len(others) > _SMALL_SHARE * len(texts):
        shown = json.dumps(others[0], ensure_ascii=False)[:60]
        raise _differs(file, f"{len(others):,} of {len(texts):,} texts otherwise, {shown} for one")
    return note


def _differs(file: Path, how: str) -> ArtifactError:
    return ArtifactError(
        f"{file}: cuts {how} than it would be cut here, so one of its settings is not supported, "
        "or the files next to it are another model's; import another model"
    )
