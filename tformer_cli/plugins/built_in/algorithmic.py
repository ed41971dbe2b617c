"""The built-in algorithmic tasks: strings of symbols whose answers follow from a rule.

========  ==========================================================================
copy      the string itself
reverse   its symbols from the last to the first
sort      its digits in ascending order
parity    "even" or "odd", as the sum of its digits is
brackets  "balanced" if every bracket has its partner, else "unbalanced"
========  ==========================================================================

Symbols have spaces between them. A string belongs to training, validation or test by its hash, so
that no string of one is in another: a model that answers the test right has learned the rule. The
gold of a string is which symbol of the answer comes from which of its own (Pharaoh links), or the
places of the symbols that decide its label.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar.choices import Choices
from tformer_cli.plugins.built_in.splits import write_splits

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
MOST_STRINGS = 50_000
"""Training strings that may be asked for."""
_HELD_OUT_SHARE, _MOST_HELD_OUT = 0.1, 1000
"""Share of all strings for validation, the same share for the test, and the most of each."""
_PATIENCE = 20_000
"""Draws in a row without a new string after which the strings count as exhausted."""
_PARTNERS = {")": "(", "]": "["}
_DAMAGED_SHARE = 0.5
"""Share of bracket strings that are damaged; some of them are balanced all the same."""


class Example(NamedTuple):
    """A string with its answer."""

    source: str
    target: str
    gold: str
    """Pharaoh links, or places of the symbols that decide, from 0."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A rule and the strings that it is asked about."""

    draw: Callable[[Choices], Sequence[str]]
    answer: Callable[[Sequence[str]], tuple[Sequence[str], Sequence[int]]]
    """Returns the answer, and the places in the string that it comes from, or that decide it."""
    has_labels: bool = False

    def example(self, string: Sequence[str]) -> Example:
        answer, places = self.answer(string)
        links = (f"{place}-{at}" for at, place in enumerate(places))
        gold = " ".join(map(str, places) if self.has_labels else links)
        return Example(" ".join(string), " ".join(answer), gold)

    @property
    def suffixes(self) -> tuple[str, str, str]:
        """Endings of the files that strings, answers and gold are written to."""
        return ("txt", "label", "gold") if self.has_labels else ("source", "target", "align")


def _strings_of(symbols: str, shortest: int, longest: int) -> Callable[[Choices], Sequence[str]]:
    lengths = range(shortest, longest + 1)
    return lambda rng: [rng.pick(symbols) for _ in range(rng.pick(lengths))]


def _drawn_brackets(rng: Choices) -> Sequence[str]:
    """Draws brackets, about half of the strings balanced; others are damaged in one place."""
    string: list[str] = []
    for _ in range(rng.pick(range(2, 8))):
        opened = rng.pick("([")
        closed = ")" if opened == "(" else "]"
        start = rng.pick(range(len(string) + 1))
        # A pair around what is balanced from there on keeps the string balanced
        ends = [end for end in range(start, len(string) + 1) if not _find_open(string[start:end])]
        end = rng.pick(ends)
        string = [*string[:start], opened, *string[start:end], closed, *string[end:]]
    if rng.chance(_DAMAGED_SHARE):  # the same symbol may be drawn: some stay balanced
        string[rng.pick(range(len(string)))] = rng.pick("([)]")
    return string


def _find_open(string: Sequence[str]) -> list[int]:
    """The first closing bracket without its partner, or else all that are not closed."""
    opened: list[int] = []
    for place, symbol in enumerate(string):
        if symbol not in _PARTNERS:
            opened.append(place)
        elif opened and string[opened[-1]] == _PARTNERS[symbol]:
            opened.pop()
        else:
            return [place]  # whatever follows, this one decides
    return opened


def _pick(string: Sequence[str], places: Sequence[int]) -> tuple[list[str], Sequence[int]]:
    return [string[place] for place in places], places


def _parity(string: Sequence[str]) -> tuple[list[str], list[int]]:
    odd = [place for place, symbol in enumerate(string) if int(symbol) % 2]
    return ["odd" if len(odd) % 2 else "even"], odd


def _balance(string: Sequence[str]) -> tuple[list[str], list[int]]:
    places = _find_open(string)
    return ["unbalanced" if places else "balanced"], places


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        "copy": Task(draw=_strings_of("abcdefgh", 1, 12), answer=lambda s: _pick(s, range(len(s)))),
        "reverse": Task(
            draw=_strings_of("abcdefgh", 1, 10), answer=lambda s: _pick(s, range(len(s))[::-1])
        ),
        "sort": Task(
            draw=_strings_of("0123456789", 1, 10),
            answer=lambda s: _pick(s, sorted(range(len(s)), key=s.__getitem__)),
        ),
        "parity": Task(draw=_strings_of("0123456789", 2, 5), answer=_parity, has_labels=True),
        "brackets": Task(draw=_drawn_brackets, answer=_balance, has_labels=True),
    }
)


def generate_examples(name: str, n_train: int, seed: int = 1) -> Iterator[tuple[Split, Example]]:
    """Yields distinct strings with their answers: `n_train` for training, others held out."""
    wanted: dict[Split, int] = dict(split_sizes(n_train))
    task, rng = TASKS[name], Choices(seed)
    seen: set[str] = set()
    n_failed = 0
    while any(wanted.values()):
        example = task.example(task.draw(rng))
        # By its hash: no string of one split is in another, whatever the seed
        split = split_of(name, example.source)
        n_failed += 1
        if n_failed > _PATIENCE:  # short strings run out, and nothing else ends the loop
            raise DataError(f"pairs: there are no more strings for {name}; ask for fewer")
        if wanted[split] and example.source not in seen:
            seen.add(example.source)
            wanted[split] -= 1
            n_failed = 0
            yield split, example


def split_sizes(n_train: int) -> Mapping[Split, int]:
    if not 1 <= n_train <= MOST_STRINGS:
        raise DataError(
            f"pairs: must be 1 to {MOST_STRINGS:,} for algorithmic tasks, but is {n_train:,}; ask "
            "for fewer"
        )
    held_out = max(2, min(_MOST_HELD_OUT, int(n_train * _HELD_OUT_SHARE)))
    return {"train": n_train, "valid": held_out, "test": held_out}


def split_of(name: str, source: str) -> Split:
    digest = blake2b(f"{name} {source}".encode(), digest_size=4).digest()
    place = int.from_bytes(digest, "big") / 4294967296.0
    if place < 2 * _HELD_OUT_SHARE:
        return "test" if place < _HELD_OUT_SHARE else "valid"
    return "train"


def write_examples(
    directory: Path,
    name: str,
    n_pairs: int = 8000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Writes `train|valid|test` with strings, answers and gold; see `write_splits`."""
    # Endings are `.source`, `.target` and `.align`, or of labels `.txt`, `.label` and `.gold`.
    split_sizes(n_pairs)  # an impossible number is an error before a directory is made
    examples = generate_examples(name, n_pairs, seed)
    return write_splits(directory, TASKS[name].suffixes, examples, progress)
