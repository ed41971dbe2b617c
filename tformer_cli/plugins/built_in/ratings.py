"""The built-in ratings: sentences about places, each with 1 to 5 stars by a rule.

A sentence is opening + subject + verb + negation + degree + adjective: "Honestly, this restaurant
was not too terrible." Only the last three decide its stars:

========  =====================================================================================
value     of the adjective: -2 terrible, -1 bad, +1 good, +2 wonderful, and others like each
degree    "very" makes ±1 to ±2, "fairly" makes ±2 to ±1; "too" (with a negation) changes nothing
negation  moves two steps to the other side: not terrible -2 → 0, not bad -1 → +1
stars     3 + value
========  =====================================================================================

Some combinations of negation, degree and adjective are kept for the test, and others for
validation: no training sentence has them, under whatever subject. So a model that rates the test
right has learned the rule and not the sentences.

The gold words of a sentence are its adjective, and what changes its stars: those without which it
would have others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar.choices import Choices
from tformer_cli.plugins.built_in.splits import write_splits

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
STARS = ("1", "2", "3", "4", "5")
FAMOUS = "This restaurant was not too terrible."
"""Three stars; the first sentence of the test."""
_HELD_OUT = "not too terrible"
_TEST_SHARE, _VALID_SHARE = 0.1, 0.05
"""Shares of the combinations of negation, degree and adjective that no training sentence has."""
_EVALUATION = 1000
_PATIENCE = 20_000
"""Draws in a row without a new sentence after which the sentences count as exhausted."""
MOST_RATINGS = 50_000
"""Training sentences that may be asked for; there are several times as many."""

_OPENINGS = ("", "Honestly, ", "I must say that ", "My friends agree that ", "Last night ")
_SUBJECTS = (
    "this restaurant", "the soup", "the bread", "our waiter", "the room", "the breakfast",
    "the view", "the garden", "the coffee", "the music", "the service", "the dessert",
    "this place", "the hotel", "the staff", "the menu", "the fish", "the terrace", "the bar",
    "the location",
)  # fmt: skip
_VERBS = ("was", "is")
_NEGATIONS = ("", "", "not", "never", "n't")
"""As many sentences in five without one as chance gives: two."""
_DEGREES = {
    "": "", "very": "more", "really": "more", "extremely": "more", "fairly": "less",
    "rather": "less", "too": "",
}  # fmt: skip
_ADJECTIVES = {
    "terrible": -2, "awful": -2, "horrible": -2, "dreadful": -2, "disgusting": -2, "appalling": -2,
    "bad": -1, "poor": -1, "dull": -1, "weak": -1, "unpleasant": -1, "disappointing": -1,
    "good": 1, "nice": 1, "pleasant": 1, "decent": 1, "friendly": 1, "tasty": 1,
    "wonderful": 2, "great": 2, "excellent": 2, "fantastic": 2, "perfect": 2, "superb": 2,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rating:
    """A sentence with its stars."""

    text: str
    stars: str
    gold: tuple[int, ...]
    """Places of the words that decide, from 0, over words separated by spaces."""


def stars_of(negation: str, degree: str, adjective: str) -> int:
    value = _ADJECTIVES[adjective]
    side = 1 if value > 0 else -1
    if _DEGREES[degree] == "more":
        value = 2 * side
    elif _DEGREES[degree] == "less":
        value = side
    return 3 + value - (2 * side if negation else 0)


def generate_ratings(n_train: int, seed: int = 1) -> Iterator[tuple[Split, Rating]]:
    """Yields distinct sentences: `n_train` for training, others for validation and test."""
    wanted: dict[Split, int] = dict(rating_sizes(n_train))
    rng, seen = Choices(seed), {FAMOUS}
    yield "test", make_rating("", "this restaurant", "was", "not", "too", "terrible")
    wanted["test"] -= 1
    n_failed = 0
    while any(wanted.values()):
        parts = _draw_parts(rng)
        split, rating = split_of(*parts[3:]), make_rating(*parts)
        n_failed += 1
        if n_failed > _PATIENCE:  # as in `algorithmic`
            raise DataError("pairs: there are no more sentences; ask for fewer")
        if wanted[split] and rating.text not in seen:
            seen.add(rating.text)
            wanted[split] -= 1
            n_failed = 0
            yield split, rating


def rating_sizes(n_train: int) -> Mapping[Split, int]:
    if not 1 <= n_train <= MOST_RATINGS:
        raise DataError(
            f"pairs: must be 1 to {MOST_RATINGS:,} for ratings, but is {n_train:,}; ask for fewer"
        )
    held_out = max(2, min(_EVALUATION, n_train // 5))
    return {"train": n_train, "valid": held_out, "test": held_out}


def split_of(negation: str, degree: str, adjective: str) -> Split:
    """Returns the split of a combination; all negations count as one."""
    # One word for all negations: *never bad* in training would give away *not bad*
    combination = f"{'not' if negation else ''} {degree} {adjective}".strip()
    if combination == _HELD_OUT:
        return "test"
    digest = blake2b(combination.encode(), digest_size=4).digest()
    place = int.from_bytes(digest, "big") / 4294967296.0
    if place < _TEST_SHARE:
        return "test"
    return "valid" if place < _TEST_SHARE + _VALID_SHARE else "train"


def make_rating(
    opening: str, subject: str, verb: str, negation: str, degree: str, adjective: str
) -> Rating:
    stars = stars_of(negation, degree, adjective)
    before = f"{opening}{subject}".split()
    negated = [f"{verb}n't"] if negation == "n't" else [verb, *([negation] if negation else [])]
    words = [*before, *negated, *([degree] if degree else []), f"{adjective}."]
    gold = [len(words) - 1]
    if degree and stars_of(negation, "", adjective) != stars:
        gold.insert(0, len(words) - 2)
    if negation:
        gold.insert(0, len(before) + len(negated) - 1)
    text = " ".join(words)
    return Rating(text=text[0].upper() + text[1:], stars=str(stars), gold=tuple(gold))


def draw_negation(rng: Choices) -> tuple[Rating, Rating]:
    """Draws a sentence with *not*, and the same one with *really* in its place."""
    opening, subject, verb = rng.pick(_OPENINGS), rng.pick(_SUBJECTS), rng.pick(_VERBS)
    return negation(opening, subject, verb, rng.pick(("", "too")), rng.pick(list(_ADJECTIVES)))


def negation(
    opening: str, subject: str, verb: str, degree: str, adjective: str
) -> tuple[Rating, Rating]:
    """Makes a sentence with *not*, and the same one with *really* in its place."""
    negated = make_rating(opening, subject, verb, "not", degree, adjective)
    # Behind *really*, too, *too* changes nothing; so both sentences are as long
    stars = str(stars_of("", "really", adjective))
    text = negated.text.replace(" not ", " really ")
    return negated, Rating(text=text, stars=stars, gold=negated.gold)


def _draw_parts(rng: Choices) -> tuple[str, str, str, str, str, str]:
    opening, subject, verb = rng.pick(_OPENINGS), rng.pick(_SUBJECTS), rng.pick(_VERBS)
    negation = rng.pick(_NEGATIONS)
    # *too* has a value under a negation only
    degrees = [degree for degree in _DEGREES if negation or degree != "too"]
    return opening, subject, verb, negation, rng.pick(degrees), rng.pick(list(_ADJECTIVES))


def write_ratings(
    directory: Path,
    n_pairs: int = 8000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Writes `train|valid|test` as `.txt`, `.label` and `.gold`; see `write_splits`."""
    rating_sizes(n_pairs)
    rows = (
        (split, (rating.text, rating.stars, " ".join(map(str, rating.gold))))
        for split, rating in generate_ratings(n_pairs, seed)
    )
    return write_splits(directory, ("txt", "label", "gold"), rows, progress)
