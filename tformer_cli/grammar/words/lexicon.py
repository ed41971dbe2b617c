"""The lexicon as objects: every entry parsed once, and the pools the grammar draws from."""

from functools import cache

from tformer_cli.grammar.choices import FLATTENING, Pool
from tformer_cli.grammar.words import adjectives, other, verbs
from tformer_cli.grammar.words.entries import (
    Adjective,
    Expression,
    Noun,
    entries,
    parse_adjective,
    parse_expression,
    parse_noun,
    parse_verb,
)
from tformer_cli.grammar.words.nouns import NOUNS as NOUN_TABLES

NOUNS = [parse_noun(e, tags) for tags, table in NOUN_TABLES.items() for e in entries(table)]
NOUN = {noun.english: noun for noun in NOUNS}

TRANSITIVE = Pool([parse_verb(e) for e in entries(verbs.TRANSITIVE, "\n")])
PREPOSITIONAL = Pool([parse_verb(e) for e in entries(verbs.PREPOSITIONAL, "\n")])
INTRANSITIVE = Pool([parse_verb(e) for e in entries(verbs.INTRANSITIVE, "\n")])
DITRANSITIVE = Pool(
    [parse_verb("|".join([*e.split("|")[:2], "human", e.split("|")[2]]))
     for e in entries(verbs.DITRANSITIVE, "\n")]
)  # fmt: skip
OPINION = Pool([parse_verb(e) for e in entries(verbs.OPINION)])
CONTROL = Pool(
    [parse_verb("|".join(e.split("|")[:2]), e.split("|")[2]) for e in entries(verbs.CONTROL)]
)
BE = parse_verb("be|être~")
HAVE = parse_verb("have|avoir~|human|portable thing clothes vehicle animal food")
CAN = parse_verb("can|pouvoir~", "")
MUST = parse_verb("must|devoir~", "")
GO = parse_verb("go|aller*")
COME = parse_verb("come|venir*")
LIVE = parse_verb("live|habiter~")

ANIMATE = [parse_adjective(e) for e in entries(adjectives.ANIMATE)]
HUMAN_ONLY = [parse_adjective(e) for e in entries(adjectives.HUMAN_ONLY)]
BEFORE = [parse_adjective(e, precedes=True) for e in entries(adjectives.BEFORE_NOUN)]
COLORS = [parse_adjective(e) for e in entries(adjectives.COLORS)]
NATIONALITIES = [parse_adjective(e) for e in entries(adjectives.NATIONALITIES)]
THING_ADJECTIVES = {
    tag: [parse_adjective(e) for e in entries(table)] for tag, table in adjectives.THINGS.items()
}
STEEP = 4.0
"""Flattening where the first words of a list are to be met often."""
COLORED = frozenset({"clothes", "portable", "vehicle", "fixture", "flower"})
NATIONAL = frozenset({"human", "vehicle", "text", "song", "show"})

NAMES = Pool([tuple(e.split()) for e in entries(other.NAMES)])
COUNTRIES = Pool([tuple(e.split("|")) for e in entries(other.COUNTRIES)])
CITIES = Pool([tuple(e.split("|")) for e in entries(other.CITIES)])
NUMBERS = Pool([tuple(e.split("|")) for e in entries(other.NUMBERS)])


def _expressions(table: str) -> Pool[Expression]:
    return Pool([parse_expression(e) for e in entries(table)])


PAST_TIMES = _expressions(other.PAST_TIMES)
PRESENT_TIMES = _expressions(other.PRESENT_TIMES)
FUTURE_TIMES = _expressions(other.FUTURE_TIMES)
STATE_TIMES = _expressions(other.STATE_TIMES)
MANNER = _expressions(other.MANNER)
FREQUENCY = _expressions(other.FREQUENCY)
DEGREES = _expressions(other.DEGREES)


@cache
def nouns(tags: str, flattening: float = FLATTENING) -> Pool[Noun]:
    """Return the pool of nouns that carry one of ``tags``; classes are weighted alike."""
    wanted = tags.split()
    chosen: list[Noun] = []
    weights: list[float] = []
    for tag in wanted:
        ranked = [noun for noun in NOUNS if tag in noun.tags]
        if not ranked:
            raise ValueError(f"No noun carries the tag {tag!r}.")
        law = Pool(ranked, flattening=flattening)
        chosen += ranked
        weights += [1.0 / (rank + flattening) / law.total for rank in range(len(ranked))]
    return Pool(chosen, weights)


def _applies(adjective: Adjective, noun: Noun) -> bool:
    return not noun.tags.isdisjoint(adjectives.BEFORE_NOUN_TAGS[adjective.english].split())


@cache
def describing(noun: Noun) -> Pool[Adjective] | None:
    """Return the adjectives that can stand with ``noun``, or None."""
    return _adjective_pool([*specific(noun), *_general(noun)])


@cache
def predicates(noun: Noun) -> Pool[Adjective] | None:
    """Return the adjectives that can follow *is* with ``noun``: no colours or nationalities."""
    general = [a for a in BEFORE if _applies(a, noun) and a.english not in ("good", "bad", "new")]
    return _adjective_pool([*specific(noun), *general])


def _general(noun: Noun) -> list[Adjective]:
    found = [a for a in BEFORE if _applies(a, noun)]
    if not noun.tags.isdisjoint(COLORED) and "mass" not in noun.tags:
        found += COLORS
    if "animal" in noun.tags:
        found += [color for color in COLORS if color.english in ("white", "black", "brown", "grey")]
    if not noun.tags.isdisjoint(NATIONAL):
        found += NATIONALITIES
    return found


def specific(noun: Noun) -> list[Adjective]:
    """Return the adjectives of the noun's class of meaning, for persons or for things."""
    found: list[Adjective] = []
    if not noun.tags.isdisjoint({"human", "animal"}):
        found += ANIMATE
    if "human" in noun.tags:
        found += HUMAN_ONLY
    for tag, listed in THING_ADJECTIVES.items():
        if tag in noun.tags:
            found += [a for a in listed if a.english not in {f.english for f in found}]
    return found


@cache
def reasons(noun: Noun, sign: str) -> Pool[Adjective] | None:
    """Return the adjectives that give a reason for (``+``) or against (``-``) an action."""
    pool = ANIMATE if not noun.tags.isdisjoint({"human", "animal"}) else specific(noun)
    found = [a for a in pool if a.sign == sign]
    return Pool(found, flattening=STEEP) if found else None


def _adjective_pool(found: list[Adjective]) -> Pool[Adjective] | None:
    return Pool(found) if found else None
