"""Minimal pairs: two sentences that differ in one word, which decides another one in the answer.

=========  =======================  ===========================================================
name       decided                  cause: the word that differs
=========  =======================  ===========================================================
pronoun    *il* or *elle*           the adjective: only one of two nouns can be *wide*
agreement  *un* or *une*            the noun, whose gender the article takes
number     *le* or *la*, or *les*   the noun: one, or many
negation   *ne*, or the verb        *never* or *often*
rating     how many stars           *not* or *really*: *not too terrible* has three
=========  =======================  ===========================================================

The first four are translated by models of the built-in corpus, the last is rated by those of the
built-in ratings. The famous sentences come first; behind them either sentence of a pair is as often
the first one, so that what holds over pairs belongs to the decision and not to one of its words.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.plugins.built_in.grammar.choices import Choices
from tformer_cli.plugins.built_in.grammar.clauses import clause
from tformer_cli.plugins.built_in.grammar.complex import (
    AVERSE,
    FAMILY_OBJECTS,
    FAMILY_VERBS,
    because,
    reason_clause,
    winograd,
)
from tformer_cli.plugins.built_in.grammar.constructions import draw_object
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    noun_phrase,
    someone,
)
from tformer_cli.plugins.built_in.grammar.surface import finish
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Noun
from tformer_cli.plugins.built_in.ratings import Rating, draw_negation, negation

PATIENCE = 20_000
"""Draws in all after which the pairs count as exhausted, as in `generate`."""
FREQUENCY = {adverb.english[0]: adverb for adverb in lexicon.FREQUENCY.items}


class DrawnPair(NamedTuple):
    """Two sentences, the word that either decides, and the word in which they differ."""

    sentence: str
    other: str
    target: str
    foil: str
    cause: tuple[str, str]

    def swap_sides(self) -> "DrawnPair":
        return DrawnPair(self.other, self.sentence, self.foil, self.target, self.cause[::-1])


def draw_pairs(name: str, n_pairs: int, seed: int = 1) -> list[DrawnPair]:
    """Draws distinct pairs of a kind, the same for the same seed."""
    pairs = dict[frozenset[str], DrawnPair]()
    for pair in _stream(PAIRS[name], Choices(seed)):
        pairs.setdefault(frozenset((pair.sentence, pair.other)), pair)
        if len(pairs) == n_pairs:
            return list(pairs.values())
    raise DataError(f"--draw: there are only {len(pairs):,} such pairs; ask for fewer")


def _stream(kind: "PairKind", rng: Choices) -> Iterator[DrawnPair]:
    first = kind.famous()
    if first is not None:
        yield first
    for _ in range(PATIENCE):
        pair = kind.draw(rng)
        if pair is not None:
            yield pair.swap_sides() if rng.chance(0.5) else pair


def _make_pair(first: Phrase, second: Phrase) -> DrawnPair | None:
    """Makes a pair of two sentences; None if they differ in more than a word."""
    sentence, other = (finish(phrase.english, phrase.french, ".") for phrase in (first, second))
    if len(sentence.source_words) != len(other.source_words):
        return None
    causes = _find_changes(sentence.source_words, other.source_words)
    target, foil = _find_changes(sentence.target_words, other.target_words)[0]
    # A model may write l' and n' as one piece with what follows, and a word that comes twice would
    # be found at the wrong place
    is_clear = "'" not in target + foil
    is_clear &= sentence.target_words.count(target) == other.target_words.count(foil) == 1
    if len(causes) != 1 or not is_clear:
        return None
    return DrawnPair(
        sentence=sentence.source, other=other.source, target=target, foil=foil, cause=causes[0]
    )


def _find_changes(first: tuple[str, ...], second: tuple[str, ...]) -> list[tuple[str, str]]:
    return [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]


def _famous_pronoun() -> DrawnPair | None:
    tired, wide = (winograd(Draft(Choices(1)), adjective) for adjective in ("tired", "wide"))
    return _make_pair(tired, wide)


def _pronoun(rng: Choices) -> DrawnPair | None:
    """Draws *The animal didn't cross the street because it was too tired (too wide)*."""
    draft, verb = Draft(rng), rng.draw(FAMILY_VERBS)
    if verb.english in AVERSE or "animal" not in verb.subjects:
        return None
    tags = "animal", FAMILY_OBJECTS.get(verb.english, verb.objects)
    nouns = [draw_noun(draft, tag, lexicon.STEEP) for tag in tags]
    subject, obj = (_alone(draft, noun, "the") for noun in nouns)
    if subject.feminine == obj.feminine or obj.human:
        return None
    sentences = []
    for referent, noun, other in zip((subject, obj), nouns, nouns[::-1], strict=True):
        # A piece that both share would not tell them apart
        unclear = {word.english for word in lexicon.specific(other)} | lexicon.ABSOLUTE
        pool = lexicon.reasons(noun, "-")
        options = [word for word in pool.items if word.english not in unclear] if pool else []
        if not options:
            return None
        main = clause(draft, subject, verb, "past", obj=obj, negated=True).statement()
        reason = reason_clause(draft, referent, rng.pick(options), "past", ("too", "trop"))
        sentences.append(concatenate(main, because(draft), reason))
    return _make_pair(*sentences)


def _alone(draft: Draft, noun: Noun, determiner: str, *, plural: bool = False) -> Phrase:
    return noun_phrase(draft, noun, determiner=determiner, plural=plural, share=0.0)


def _agreement(rng: Choices) -> DrawnPair | None:
    """Draws *The girl found a key (a lamp)*."""
    draft, verb = Draft(rng), rng.draw(lexicon.TRANSITIVE)
    subject = someone(draft, verb.subjects)
    nouns = [draw_noun(draft, verb.objects) for _ in "12"]
    if nouns[0].feminine == nouns[1].feminine or not all(noun.countable for noun in nouns):
        return None
    objects = [_alone(draft, noun, "a") for noun in nouns]
    return _make_pair(
        *(clause(draft, subject, verb, "past", obj=phrase).statement() for phrase in objects)
    )


def _number(rng: Choices) -> DrawnPair | None:
    """Draws *The girl found the key (the keys)*."""
    draft, verb = Draft(rng), rng.draw(lexicon.TRANSITIVE)
    subject, noun = someone(draft, verb.subjects), draw_noun(draft, verb.objects)
    if not noun.countable or noun.english == noun.english_plural:
        return None
    objects = [_alone(draft, noun, "the", plural=many) for many in (False, True)]
    return _make_pair(
        *(clause(draft, subject, verb, "past", obj=phrase).statement() for phrase in objects)
    )


def _negation(rng: Choices) -> DrawnPair | None:
    """Draws *The girl never (often) finds the key*."""
    draft, verb = Draft(rng), rng.draw(lexicon.TRANSITIVE)
    subject, obj = someone(draft, verb.subjects), draw_object(draft, verb)
    sentences = [
        clause(draft, subject, verb, "present", obj=obj, adverb=FREQUENCY[adverb]).statement()
        for adverb in ("never", "often")
    ]
    return _make_pair(*sentences)


def _rating(ratings: tuple[Rating, Rating]) -> DrawnPair:
    """Makes a pair of *not too terrible* and *really too terrible*."""
    negated, plain = ratings
    return DrawnPair(
        sentence=negated.text,
        other=plain.text,
        target=negated.stars,
        foil=plain.stars,
        cause=("not", "really"),
    )


@dataclass(frozen=True)
class PairKind:
    """A kind of pair: what draws one, if it can, and the first."""

    draw: Callable[[Choices], DrawnPair | None]
    famous: Callable[[], DrawnPair | None] = lambda: None


PAIRS: Mapping[str, PairKind] = MappingProxyType(
    {
        "pronoun": PairKind(_pronoun, _famous_pronoun),
        "agreement": PairKind(_agreement),
        "number": PairKind(_number),
        "negation": PairKind(_negation),
        "rating": PairKind(
            lambda rng: _rating(draw_negation(rng)),
            lambda: _rating(negation("", "this restaurant", "was", "too", "terrible")),
        ),
    }
)
