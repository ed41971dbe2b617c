"""The lexicon as objects: every entry parsed once, and the pools the grammar draws from."""

from functools import cache

from tformer_cli.plugins.built_in.grammar.choices import FLATTENING, Pool
from tformer_cli.plugins.built_in.grammar.words.entries import (
    Adjective,
    Noun,
    Verb,
    parse_adjective,
    parse_expression,
    parse_noun,
    parse_verb,
)
from tformer_cli.plugins.built_in.grammar.words.tables import TABLES, entries

NOUNS = [parse_noun(e, tags) for tags, table in TABLES["nouns"].items() for e in entries(table)]
NOUN = {noun.english: noun for noun in NOUNS}

_VERBS = {name: [parse_verb(e) for e in entries(table)] for name, table in TABLES["verbs"].items()}
TRANSITIVE = Pool(_VERBS["transitive"])
PREPOSITIONAL = Pool(_VERBS["prepositional"])
INTRANSITIVE = Pool(_VERBS["intransitive"])
DITRANSITIVE = Pool(_VERBS["ditransitive"])
OPINION = Pool(_VERBS["opinion"])
CONTROL = Pool(_VERBS["control"])
BE, HAVE, CAN, MUST, GO, COME, LIVE = (
    _VERBS[name][0] for name in ("be", "have", "can", "must", "go", "come", "live")
)

_ADJECTIVES = TABLES["adjectives"]
ANIMATE = [parse_adjective(e) for e in entries(_ADJECTIVES["animate"])]
HUMAN_ONLY = [parse_adjective(e) for e in entries(_ADJECTIVES["human_only"])]
BEFORE = [parse_adjective(e, precedes=True) for e in entries(_ADJECTIVES["before_noun"])]
COLORS = [parse_adjective(e) for e in entries(_ADJECTIVES["colors"])]
NATIONALITIES = [parse_adjective(e) for e in entries(_ADJECTIVES["nationalities"])]
THING_ADJECTIVES = {
    tag: [parse_adjective(e) for e in entries(table)]
    for tag, table in _ADJECTIVES["things"].items()
}
ABSOLUTE = frozenset(entries(_ADJECTIVES["absolute"]))
"""Adjectives without degrees: no *too broken* and no *huger*."""
STEEP = 4.0
"""Flattening where the first words of a list are to be met often."""
COLORED = frozenset({"clothes", "portable", "vehicle", "fixture", "flower"})
NATIONAL = frozenset({"human", "vehicle", "text", "song", "show"})

_EXPRESSIONS = {
    name: Pool([parse_expression(e) for e in entries(table)])
    for name, table in {**TABLES["expressions"], **TABLES["everyday"]}.items()
}
GREETINGS = _EXPRESSIONS["greetings"]
SAYINGS = _EXPRESSIONS["sayings"]
INQUIRIES = _EXPRESSIONS["inquiries"]
ADDRESSES = _EXPRESSIONS["addresses"]
PAST_TIMES = _EXPRESSIONS["past_times"]
PRESENT_TIMES = _EXPRESSIONS["present_times"]
FUTURE_TIMES = _EXPRESSIONS["future_times"]
STATE_TIMES = _EXPRESSIONS["state_times"]
MANNER = _EXPRESSIONS["manner"]
FREQUENCY = _EXPRESSIONS["frequency"]
DEGREES = _EXPRESSIONS["degrees"]


def _columns(table: str, weights: list[float] | None = None) -> Pool[tuple[str, ...]]:
    return Pool([tuple(e.split("|")) for e in entries(table)], weights)


NAMES, COUNTRIES, CITIES, NUMBERS = (
    _columns(TABLES["other"][name]) for name in ("names", "countries", "cities", "numbers")
)
PROFESSIONS = frozenset(entries(TABLES["other"]["professions"]))
"""People who *are* something without an article in French."""
WEATHER = _columns(TABLES["other"]["weather"])
PLACES = _columns(TABLES["places"]["general"], [9.0, 3, 4, 3, 3, 1.5])
THING_PLACES = _columns(TABLES["places"]["things"])


def find_verbs(names: str) -> list[Verb]:
    """Return the transitive verbs of these English names, in this order."""
    return [v for name in names.split() for v in TRANSITIVE.items if v.english == name]


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
        # Divided by the sum: a class of many nouns would crowd out the others
        weights += [1.0 / (rank + flattening) / law.total for rank in range(len(ranked))]
    return Pool(chosen, weights)


def _applies(adjective: Adjective, noun: Noun) -> bool:
    return not noun.tags.isdisjoint(_ADJECTIVES["before_noun_tags"][adjective.english].split())


@cache
def describing(noun: Noun) -> Pool[Adjective] | None:
    adjectives = [*specific(noun), *_general(noun)]
    return Pool(adjectives) if adjectives else None


@cache
def predicates(noun: Noun) -> Pool[Adjective] | None:
    """Return the adjectives that can follow *is* with ``noun``: no colors or nationalities."""
    general = [a for a in BEFORE if _applies(a, noun) and a.english not in ("good", "bad", "new")]
    adjectives = [*specific(noun), *general]
    return Pool(adjectives) if adjectives else None


def _general(noun: Noun) -> list[Adjective]:
    words = [a for a in BEFORE if _applies(a, noun)]
    if not noun.tags.isdisjoint(COLORED) and "mass" not in noun.tags:
        words += COLORS
    if "animal" in noun.tags:
        words += [color for color in COLORS if color.english in ("white", "black", "brown", "grey")]
    if not noun.tags.isdisjoint(NATIONAL):
        words += NATIONALITIES
    return words


def specific(noun: Noun) -> list[Adjective]:
    """Return the adjectives of the noun's class of meaning, for persons or for things."""
    adjectives: list[Adjective] = []
    if not noun.tags.isdisjoint({"human", "animal"}):
        adjectives += ANIMATE
    if "human" in noun.tags:
        adjectives += HUMAN_ONLY
    for tag, listed in THING_ADJECTIVES.items():
        if tag in noun.tags:
            # Once each: a noun of two classes would draw shared ones twice as often
            adjectives += [a for a in listed if a.english not in {f.english for f in adjectives}]
    return adjectives


@cache
def reasons(noun: Noun, sign: str) -> Pool[Adjective] | None:
    """Return the adjectives that give a reason for (``+``) or against (``-``) an action."""
    pool = ANIMATE if not noun.tags.isdisjoint({"human", "animal"}) else specific(noun)
    adjectives = [a for a in pool if a.sign == sign]
    return Pool(adjectives, flattening=STEEP) if adjectives else None
