"""The stream of sentence pairs, each assigned to the training, validation or test corpus."""

import functools
import threading
from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar import complex as several
from tformer_cli.plugins.built_in.grammar import constructions as single
from tformer_cli.plugins.built_in.grammar import descriptions, everyday
from tformer_cli.plugins.built_in.grammar.choices import Choices, Pool
from tformer_cli.plugins.built_in.grammar.clauses import Clause, be, clause, govern, question
from tformer_cli.plugins.built_in.grammar.complex import deed, describable_subject
from tformer_cli.plugins.built_in.grammar.constructions import draw_object
from tformer_cli.plugins.built_in.grammar.descriptions import draw_predicate
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    noun_phrase,
    someone,
    tokens,
    word,
)
from tformer_cli.plugins.built_in.grammar.surface import AlignedPair, finish
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Verb

ASKED_TENSES = Pool(["past", "future", "present"], [5.0, 3.0, 2.0])
QUALITY = {(False, False): "quel", (True, False): "quelle",
           (False, True): "quels", (True, True): "quelles"}  # fmt: skip


def _human_verb(draft: Draft, prepositions: bool = True) -> Verb:
    while True:
        verb = draft.rng.draw(lexicon.TRANSITIVE)
        simple = prepositions or not (verb.french_preposition or verb.particle)
        if "human" in verb.subjects and not verb.stative and simple:
            return verb


def _asked_deed(draft: Draft) -> Clause:
    verb = _human_verb(draft)
    subject = someone(draft, "human", pronouns=0.4)
    obj = draw_object(draft, verb)
    draft.combine(subject.head, verb.english, obj.head)
    return clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), obj=obj, is_question=True)


def yes_no(draft: Draft) -> Phrase | None:
    """Return *Did the dog eat the apple*? or *Are you tired*?"""
    if draft.rng.chance(0.6):
        return question(_asked_deed(draft))
    subject = describable_subject(draft)
    adjective = draw_predicate(draft, subject)
    if adjective is None:
        return None
    draft.combine(subject.head, "be", adjective.head)
    main = be(draft, subject, draft.rng.pick(["present", "past"]))
    return question(main.extend(adjective))


ADVERBS = Pool([("why", "pourquoi"), ("where", "où"), ("when", "quand"), ("how", "comment")],
               [4.0, 3.0, 3.0, 1.0])  # fmt: skip


def adverbial(draft: Draft) -> Phrase:
    """Return a question with *why*, *where*, *when* or *how*."""
    rng = draft.rng
    if rng.chance(0.2):
        return _where_is(draft)
    return question(_asked_deed(draft), word(draft, *rng.draw(ADVERBS)))


def _where_is(draft: Draft) -> Phrase:
    """Return *Where is the cat?* / *Où est le chat ?*: the noun itself is inverted."""
    rng = draft.rng
    tags = rng.pick(["human", "animal", "portable", "building"])
    subject = someone(draft, tags, pronouns=0.4)
    main = be(draft, subject, rng.pick(["present", "present", "past"]))
    draft.combine(subject.head, "be", "where")
    where = word(draft, "where", "où")
    if subject.pronoun:
        return question(main, where)
    return concatenate(where, Phrase(main.aux + subject.english, main.finite + subject.french))


def which(draft: Draft) -> Phrase:
    """Return *Which apples did you buy?*, *How many apples …*: the participle agrees."""
    rng = draft.rng
    verb = _human_verb(draft, prepositions=False)
    noun = draw_noun(draft, verb.objects)
    many = noun.countable and rng.chance(0.45)
    thing = noun_phrase(draft, noun, determiner="the", plural=many or None, share=0.0)
    bit = thing.english[0][1]
    if many:
        source, target = "how many", "combien de"
    else:
        source, target = "which", QUALITY[thing.feminine, thing.plural]
    front = Phrase(tokens(source, bit) + thing.english[1:], tokens(target, bit) + thing.french[1:])
    subject = someone(draft, "human", pronouns=0.5)
    draft.combine(subject.head, verb.english, noun.english)
    main = clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), gap=thing, is_question=True)
    return question(main, front)


def who(draft: Draft) -> Phrase:
    """Return *Who ate the cake?* / *Qui a mangé le gâteau ?*."""
    person = word(draft, "who", "qui")
    person.head = "who"
    return deed(draft, person, draft.rng.pick(["past", "past", "future"])).statement()


def what(draft: Draft) -> Phrase:
    """Return *What did the boy find?* / *Qu'est-ce que le garçon a trouvé ?*."""
    verb = _human_verb(draft, prepositions=False)
    subject = someone(draft, "human", pronouns=0.4)
    draft.combine(subject.head, verb.english, "what")
    main = clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), is_question=True)
    bit, aux = draft.link(), main.aux[0][1]
    est_ce_que = [("que", bit), ("est-ce", bit | aux), ("que", aux)]
    return Phrase(
        [("what", bit), *main.aux, *subject.english, *main.rest],
        [*est_ce_que, *subject.french, *main.finite, *main.tail],
    )


COMMANDS = Pool(lexicon.find_verbs(
    "open close look read wash clean buy watch follow wait help prepare eat drink listen write "
    "choose hide push repair paint touch sell cut fill visit carry feed invite avoid count "
    "protect finish pull drive wear taste explore photograph thank"
))  # fmt: skip


def command(draft: Draft) -> Phrase:
    """Return *Open the window!*, *Don't touch the cake!* in the polite plural."""
    rng = draft.rng
    verb = rng.draw(COMMANDS)
    negated = rng.chance(0.35)
    obj = draw_object(draft, verb, negated)
    bit, do, negation = draft.link(), draft.link(), draft.link()
    draft.combine("you", verb.english, obj.head)
    english = [(verb.english, bit), *tokens(verb.particle, bit), *obj.english]
    french = [(verb.present[3], bit | do), *govern(verb, obj, bit)]
    if negated:
        english = [("do", do), ("n't", negation), *english]
        french = [("ne", negation), french[0], ("pas", negation), *french[1:]]
    polite = word(draft, "please", "s' il vous plaît")
    comma = word(draft, ",", ",")
    sentence = Phrase(english, french)
    return concatenate(sentence, comma, polite) if rng.chance(0.25) else sentence


Split = Literal["train", "valid", "test"]

HELD_OUT = frozenset({"animal cross street"})
"""Combinations that only the test corpus may show."""
HELD_OUT_SHARE = 0.015
"""Share of the combinations given to the test corpus, and as many to the validation corpus."""
EVALUATION_PAIRS = 1000
PATIENCE = 200_000
"""Draws in a row without a new sentence after which the grammar counts as exhausted."""
KEPT_PAIRS = 200_000
"""Training pairs of a corpus up to which a process keeps what it has seen of it."""
ROOM = 1.5
"""Slots for each number of a `DigestSet`: at two thirds full a look-up visits about two."""

CONSTRUCTIONS = Pool(
    [
        (single.transitive, "."), (single.intransitive, "."), (descriptions.description, "."),
        (several.family, "."), (several.consequence, "."), (several.reason, "."),
        (several.circumstance, "."), (several.dated_family, "."),
        (several.reported_family, "."), (several.opinion, "."), (several.subject_relative, "."),
        (several.object_relative, "."), (single.giving, "."), (single.travel, "."),
        (single.control, "."), (descriptions.existence, "."), (descriptions.possession, "."),
        (several.contrast, "."), (several.joined_subjects, "."), (several.joined_objects, "."),
        (descriptions.comparison, "."), (single.passive, "."), (single.taking, "."),
        (descriptions.weather, "."), (yes_no, "?"), (adverbial, "?"),
        (which, "?"), (who, "?"), (what, "?"),
        (command, "!"), (everyday.greeting, "!"), (everyday.saying, "."), (everyday.inquiry, "?"),
        (everyday.introduction, "."), (everyday.liking, "."), (everyday.liking_question, "?"),
        (everyday.suggestion, "!"),
    ],
    [
        17.0, 6, 5, 9, 2.5, 4, 6, 1.3, 1.3, 5, 5, 9, 4.5, 4, 5, 3, 3, 5, 2, 2.5, 3.5, 4, 6, 0.6,
        2.5, 2.5, 2, 0.8, 0.8, 2, 1, 1, 1.4, 1.4, 1.3, 0.5, 1.2,
    ],
)  # fmt: skip


def split_of(combinations: list[str]) -> Split:
    """Return the corpus of a sentence, from its combinations of subject, verb and object."""
    # A sentence with a test combination in any clause is test material, so no combination that
    # marks a test sentence occurs in the training corpus; likewise for validation.
    split: Split = "train"
    for combination in combinations:
        if combination in HELD_OUT:
            return "test"
        digest = blake2b(combination.encode(), digest_size=4).digest()
        place = int.from_bytes(digest, "big") / 4294967296.0
        if place < HELD_OUT_SHARE:
            return "test"
        if place < 2 * HELD_OUT_SHARE:
            split = "valid"
    return split


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


class SplitReader:
    """Reads the splits of a corpus, and keeps the validation and test pairs that it has seen.

    They lie among the training pairs, so that to find them all is to generate the corpus. Who reads
    the training pairs passes nearly all of them: they are not generated again.
    """

    def __init__(self, n_pairs: int, seed: int) -> None:
        self._corpus = functools.partial(generate_corpus, n_pairs, seed)
        self._sizes = split_sizes(n_pairs)
        self._lock = threading.Lock()
        self._held_out: dict[str, list[AlignedPair]] = {"valid": [], "test": []}
        self._n_seen = 0
        self._stream = enumerate(self._corpus())

    def read(self, split: str) -> Iterator[AlignedPair]:
        """Yields the pairs of a split."""
        if split == "train":
            yield from self._read_training()
            return
        found = self._held_out[split]
        for number in range(self._sizes[split]):
            with self._lock:
                while len(found) <= number:
                    self._advance()
            yield found[number]

    def _read_training(self) -> Iterator[AlignedPair]:
        stream = enumerate(self._corpus())
        n_left = self._sizes["train"]
        for place, (split, pair) in stream:
            with self._lock:
                self._keep(place, (split, pair))
            if split == "train":
                yield pair
                n_left -= 1
            if not n_left:
                break
        with self._lock:
            if self._n_seen == place + 1:  # else another reader has come further
                self._stream = stream

    def _advance(self) -> None:
        try:
            self._keep(*next(self._stream))
        except BaseException:
            # What ended, also by Ctrl-C, would say nothing to the next reader
            self._stream = enumerate(self._corpus())
            raise

    def _keep(self, place: int, drawn: tuple[Split, AlignedPair]) -> None:
        split, pair = drawn
        if place == self._n_seen:
            self._n_seen += 1
            if split != "train":
                self._held_out[split].append(pair)


_reader_of = functools.lru_cache(maxsize=2)(SplitReader)


def read_split(n_pairs: int, seed: int, split: str) -> Iterator[AlignedPair]:
    """Yields the pairs of a split; a process that reads several generates the corpus once."""
    # What a large corpus is generated by takes memory for each of its sentences
    reader = _reader_of if n_pairs <= KEPT_PAIRS else SplitReader
    return reader(n_pairs, seed).read(split)


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
        phrase = several.winograd(Draft(rng), adjective)
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
            n_train = total - wanted["train"]
            raise DataError(
                f"pairs: the built-in grammar makes {n_train}, not {total} training pairs; "
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
        while (value := slots[slot]) and value != number:
            slot = slot + 1 if slot + 1 < self._n_slots else 0
        slots[slot] = number
        return not value
