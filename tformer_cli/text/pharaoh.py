"""Word alignments as text, in the Pharaoh format: a line a sentence pair, links between spaces.

``3-5`` links source word 3 with target word 5, counted from 0 (in some files from 1).
Gold alignments also know links that are only possible, ``3?5`` or ``3p5``; ``3-5`` is then sure.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tformer_cli.errors import DataError

Link = tuple[int, int]
"""A source word and a target word, counted from 0."""
_LINK = re.compile(r"(\d{1,9})([-?p])(\d{1,9})")


class GoldLinks(NamedTuple):
    """Gold links of a sentence pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """Links that may be found; the sure ones are among them."""


def parse_links(line: str, where: str, *, is_one_based: bool = False) -> GoldLinks:
    first = 1 if is_one_based else 0
    sure, possible = set(), set()
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise DataError(
                f'{where}: "{text[:40]}" is not a link; write i-j, or i?j if only possible'
            )
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise DataError(f'{where}: "{text}" counts from 0; omit --one-based')
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


def format_links(links: Iterable[Link]) -> str:
    """Writes links in the order of their source words, then of their target words."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
