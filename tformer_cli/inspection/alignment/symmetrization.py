"""Joining the alignments of two directions into one (Och & Ney 2003; Koehn et al. 2003).

The links of both directions are given source first. The intersection is precise, the union is
complete; grow-diag starts from the first and takes from the second what touches it and links two
words that are both still free. (Moses is content with one free word, which takes in far more: 5,953
links instead of 5,072 from GIZA++'s two directions of the WPT 2003 test set.)

Published outputs of grow-diag differ in a line out of a hundred, because the result depends on the
order in which links are looked at. Here the order is fixed: rounds over the links by source word,
then target word, and round each link its neighbors in the order of `NEIGHBORS`; what is added
counts at once. Rounds continue until one adds nothing.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Literal

from tformer_cli.data.pharaoh import Link

NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
"""Steps (source, target) to the neighbors of a link: sides first, then corners."""

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final-and"]


def symmetrize(
    method: Symmetrization, forward: AbstractSet[Link], reverse: AbstractSet[Link]
) -> set[Link]:
    """Joins the links of two directions.

    Args:
        method: how.
        forward: links of the model from source to target.
        reverse: links of the model from target to source, source first.
    """
    return METHODS[method](forward, reverse)


def grow_diag(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    """Grows the intersection by neighbors from the union that link two free words."""
    links, union = set(forward & reverse), forward | reverse
    free = _FreeWords(links)
    is_growing = True
    while is_growing:
        near = [(s + a, t + b) for s, t in sorted(links) for a, b in NEIGHBORS]
        new = {link for link in near if link in union and free.take(link)}
        links |= new
        is_growing = bool(new)
    return links


def grow_diag_final_and(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    """Adds to grow-diag the links of two free words anywhere, those of `forward` first."""
    links = grow_diag(forward, reverse)
    free = _FreeWords(links)
    return links | {link for link in (*sorted(forward), *sorted(reverse)) if free.take(link)}


class _FreeWords:
    """The words that no link has taken yet."""

    def __init__(self, links: AbstractSet[Link]) -> None:
        self._sources = {source for source, _ in links}
        self._targets = {target for _, target in links}

    def take(self, link: Link) -> bool:
        """Takes both words of a link; says whether both were free."""
        source, target = link
        if source in self._sources or target in self._targets:
            return False
        self._sources.add(source)
        self._targets.add(target)
        return True


METHODS: dict[Symmetrization, Callable[[AbstractSet[Link], AbstractSet[Link]], set[Link]]] = {
    "intersection": lambda forward, reverse: set(forward & reverse),
    "union": lambda forward, reverse: set(forward | reverse),
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
"""Every method by its name."""
