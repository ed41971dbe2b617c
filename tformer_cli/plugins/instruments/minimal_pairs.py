"""Minimal pairs: two sentences that differ in one word, which decides another one in the answer.

The built-in kinds are drawn by `plugins.built_in.minimal_pairs`; a file may name others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tformer_cli.errors import DataError, UsageError
from tformer_cli.sockets import load_place
from tformer_cli.wording import did_you_mean, is_blank, suggestions

DRAWN = "tformer_cli.plugins.built_in.minimal_pairs"
REPEATS = "repeats"
"""The kind whose tokens a model's own vocabulary gives."""
MOST_COLUMNS = 4


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """Two sentences, and the decision of each."""

    sentence: str
    other: str
    target: str = ""  # Decided of `sentence`; empty: whatever a model decides
    foil: str = ""  # Decided of `other`
    cause: tuple[str, str] = ("", "")  # The word that differs, in either
    line: int = 0  # In a file, from 1

    def swap_sides(self) -> "MinimalPair":
        return MinimalPair(
            sentence=self.other,
            other=self.sentence,
            target=self.foil,
            foil=self.target,
            cause=self.cause[::-1],
        )


def minimal_pairs(name: str, n_pairs: int, seed: int = 1) -> list[MinimalPair]:
    """Draws distinct pairs of a kind, the same for the same seed."""
    drawn = load_place(f"{DRAWN}:draw_pairs")(name, n_pairs, seed)
    return [MinimalPair(**pair._asdict()) for pair in drawn]


def pair_kinds() -> tuple[str, ...]:
    """Names the built-in kinds."""
    kinds: Mapping[str, object] = load_place(f"{DRAWN}:PAIRS")
    return (*kinds, REPEATS)


def read_pairs(lines: Iterable[str], name: str) -> Iterator[MinimalPair]:
    """Reads a table of pairs: SENTENCE, OTHER and perhaps TARGET and FOIL in each line.

    Of the same two sentences, either way round, only the first pair is read: the other one would
    judge the circuit that it chose.
    """
    seen = set[frozenset[str]]()
    for number, line in enumerate(lines, 1):
        columns = line.split("\t")
        if not is_blank(line):
            if not 2 <= len(columns) <= MOST_COLUMNS or any(map(is_blank, columns[:2])):
                raise DataError(
                    f"{name}: line {number}: has no pair; write SENTENCE, OTHER and, unless the "
                    "first difference decides, TARGET and FOIL, with tabs between them"
                )
            sentence, other, target, foil = (*columns, "", "")[:MOST_COLUMNS]
            both = frozenset((sentence.strip(), other.strip()))
            if both not in seen:
                seen.add(both)
                yield MinimalPair(
                    sentence=sentence, other=other, target=target.strip(), foil=foil.strip(),
                    line=number,
                )  # fmt: skip


def check_name(name: str) -> None:
    """Refuses the name of pairs that are neither built in nor a file."""
    kinds = pair_kinds()
    if name not in kinds:
        near = did_you_mean(suggestions(name, kinds))
        raise UsageError(
            f'PAIRS: "{name}" is neither a file nor a kind; the kinds are {", ".join(kinds)}'
            + (f"; {near}" if near else "")
        )
