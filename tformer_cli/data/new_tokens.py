"""Words that are added to a tokenizer, each a piece of its own where it stands between spaces."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise

from tformer_cli.data.lines import without_surrogates
from tformer_cli.errors import DataError


def check_new_token(word: str, *, is_there: bool) -> None:
    """Makes sure that a word can be added."""
    if word.split() != [word] or without_surrogates(word) != word:
        raise DataError(f"{json.dumps(word)}: is not a word; give one without white space")
    if is_there:
        raise DataError(f"{json.dumps(word)}: is a piece of the vocabulary; omit it")


class NewTokens:
    """Finds words that were added in texts."""

    def __init__(self, words: Iterable[str], *, keeps_space_behind: bool) -> None:
        longest_first = sorted(words, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, longest_first))})(?!\S)")
        self._keeps_space_behind = keeps_space_behind

    def are_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def split(self, text: str) -> list[tuple[int, str, bool]]:
        """Splits a text: where each part begins, the part, and whether it is one of the words."""
        found = [match.span() for match in self._pattern.finditer(text)]
        parts = []
        for (_, start), (end, after) in pairwise([(0, 0), *found, (len(text), len(text))]):
            if start and not self._keeps_space_behind and text[start:end].startswith(" "):
                start += 1
            stop = end - 1 if end < after and text[start:end].endswith(" ") else end
            if start < stop:
                parts.append((start, text[start:stop], False))
            if end < after:
                parts.append((end, text[end:after], True))
        return parts
