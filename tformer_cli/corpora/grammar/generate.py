"""The stream of sentence pairs, each assigned to the training, validation or test corpus."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

import numpy as np

from tformer_cli.corpora.grammar import complex as several
from tformer_cli.corpora.grammar import constructions as single
from tformer_cli.corpora.grammar import coreference, descriptions, questions
from tformer_cli.corpora.grammar.choices import Choices, Pool
from tformer_cli.corpora.grammar.phrases import Draft
from tformer_cli.corpora.grammar.surface import AlignedPair, finish
from tformer_cli.errors import DataError

Split = Literal["train", "valid", "test"]

HELD_OUT = frozenset({"animal cross street"})
"""Combinations that only the test corpus may show."""
HELD_OUT_SHARE = 0.015
"""Share of the combinations given to the test corpus, and as many to the validation corpus."""
EVALUATION_PAIRS = 1000
PATIENCE = 200_000
"""Draws in a row without a new sentence after which the grammar counts as exhausted."""
ROOM = 1.5
"""Slots for each number of a `DigestSet`: at two thirds full a look-up visits about two."""

CONSTRUCTIONS = Pool(
    [
        (single.transitive, "."), (single.intransitive, "."), (descriptions.description, "."),
        (coreference.family, "."), (coreference.consequence, "."), (several.reason, "."),
        (several.circumstance, "."), (coreference.dated_family, "."),
        (coreference.reported_family, "."), (several.opinion, "."), (several.subject_relative, "."),
        (several.object_relative, "."), (single.giving, "."), (single.travel, "."),
        (single.controlled, "."), (descriptions.existence, "."), (descriptions.possession, "."),
        (several.contrast, "."), (several.joined_subjects, "."), (several.joined_objects, "."),
        (descriptions.comparison, "."), (single.passive, "."), (single.taking, "."),
        (descriptions.weather, "."), (questions.yes_no, "?"), (questions.adverbial, "?"),
        (questions.which, "?"), (questions.who, "?"), (questions.what, "?"),
        (questions.command, "!"),
    ],
    [
        17.0, 6, 5, 9, 2.5, 4, 6, 1.3, 1.3, 5, 5, 9, 4.5, 4, 5, 3, 3, 5, 2, 2.5, 3.5, 4, 6, 0.6,
        2.5, 2.5, 2, 0.8, 0.8, 2,
    ],
)  # fmt: skip


def split_of(combinations: list[str]) -> Split:
    """Return the corpus of a sentence, from its combinations of subject, verb and object."""
    # A sentence with a test combination in any clause is test material, so no combination that
    # marks a test sentence occurs in the training corpus; likewise for validation.
    found: Split = "train"
    for combination in combinations:
        if combination in HELD_OUT:
            return "test"
        digest = blake2b(combination.encode(), digest_size=4).digest()
        place = int.from_bytes(digest, "big") / 4294967296.0
        if place < HELD_OUT_SHARE:
            return "test"
        if place < 2 * HELD_OUT_SHARE:
            found = "valid"
    return found


def draw_pair(rng: Choices) -> tuple[Split, AlignedPair]:
    while True:
        construction, mark = rng.draw(CONSTRUCTIONS)
        draft = Draft(rng)
        phrase = construction(draft)
        if phrase is not None:
            return split_of(draft.combinations), finish(phrase.english, phrase.french, mark)


def generate_corpus(n_pairs: int, seed: int = 1) -> Iterator[tuple[Split, AlignedPair]]:
    """Stream distinct pairs: ``n_pairs`` for training, up to 1,000 each for validation and test."""
    # The order and content of the training pairs do not depend on ``n_pairs``. The test corpus
    # begins with *The animal didn't cross the street because it was too tired* and *… too wide*.
    return _stream(split_sizes(n_pairs), Choices(seed))


def split_sizes(n_pairs: int) -> dict[str, int]:
    """Return how many pairs `generate_corpus` gives each corpus, so that one can stop early."""
    if n_pairs < 1:
        raise DataError(f"pairs: must be at least 1, but is {n_pairs}")
    held_out = max(2, min(EVALUATION_PAIRS, n_pairs // 20))
    return {"train": n_pairs, "valid": held_out, "test": held_out}


def _stream(wanted: dict[str, int], rng: Choices) -> Iterator[tuple[Split, AlignedPair]]:
    total = wanted["train"]
    seen = DigestSet(sum(wanted.values()))
    for adjective in ("tired", "wide"):
        phrase = coreference.winograd(Draft(rng), adjective)
        pair = finish(phrase.english, phrase.french, ".")
        seen.add(_digest(pair.source))
        wanted["test"] -= 1
        yield "test", pair
    idle = 0
    while any(wanted.values()):
        split, pair = draw_pair(rng)
        idle += 1
        if wanted[split] and seen.add(_digest(pair.source)):
            wanted[split] -= 1
            idle = 0
            yield split, pair
        elif idle > PATIENCE:  # nothing else shows that the sentences have run out
            made = total - wanted["train"]
            raise DataError(
                f"pairs: the built-in grammar makes {made}, not {total} training pairs; "
                "ask for fewer"
            )


def _digest(sentence: str) -> int:
    return int.from_bytes(blake2b(sentence.encode(), digest_size=8).digest(), "big")


class DigestSet:
    """Numbers below 2⁶⁴, at most as many as it was made for; 0 counts as 1.

    A number takes 12 bytes, where one of Python's own sets takes a hundred. Open addressing with
    linear probing (Knuth, The Art of Computer Programming 3, section 6.4).
    """

    def __init__(self, capacity: int) -> None:
        self._n_slots = int(capacity * ROOM) + 1
        # A memory view reads one number five times as fast as an array.
        self._slots = np.zeros(self._n_slots, dtype=np.uint64).data

    def add(self, number: int) -> bool:
        """Adds a number; True if it is new."""
        number = number or 1  # 0 marks an empty slot
        slots, slot = self._slots, number % self._n_slots
        while (found := slots[slot]) and found != number:
            slot = slot + 1 if slot + 1 < self._n_slots else 0
        slots[slot] = number
        return not found
