"""Tenses with the times that fit them, and places: the possible ends of a clause."""

from tformer_cli.plugins.built_in.grammar.choices import Pool
from tformer_cli.plugins.built_in.grammar.clauses import Clause
from tformer_cli.plugins.built_in.grammar.determiners import with_preposition
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    expression,
    noun_phrase,
    tokens,
    word,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Expression, Verb

TENSES = Pool(
    ["past", "present", "future", "perfect", "progressive", "past_progressive"],
    [44.0, 22, 15, 7, 8, 4],
)
STATE_TENSES = Pool(["present", "past", "future"], [5.0, 4.0, 1.0])
TIMES = {
    "past": lexicon.PAST_TIMES,
    "present": lexicon.PRESENT_TIMES,
    "future": lexicon.FUTURE_TIMES,
}
NEGATION_SHARE = 0.17


def draw_tense(draft: Draft, verb: Verb) -> str:
    """Return a tense that ``verb`` can have: states have no progressive."""
    return draft.rng.draw(STATE_TENSES if verb.stative else TENSES)


def time(draft: Draft, verb: Verb, tense: str) -> Phrase | None:
    if verb.stative and tense == "past":
        # A past state is an *imparfait*, which fewer times suit
        return expression(draft, draft.rng.draw(lexicon.STATE_TIMES))
    pool = TIMES.get(tense)
    return expression(draft, draft.rng.draw(pool)) if pool else None


def frequency(draft: Draft, tense: str, negated: bool) -> Expression | None:
    if negated or tense not in ("present", "past") or not draft.rng.chance(0.12):
        return None
    return draft.rng.draw(lexicon.FREQUENCY)


def place(draft: Draft, options: Pool[tuple[str, ...]]) -> Phrase:
    """Return a place such as *in front of the house*."""
    english, french, tags = draft.rng.draw(options)
    noun = draw_noun(draft, tags)
    kind = "the" if draft.rng.chance(0.7) else "a" if draft.rng.chance(0.6) else "this"
    landmark = noun_phrase(draft, noun, determiner=kind, plural=False, share=0.15)
    bit = draft.link()
    target = with_preposition(tokens(french, bit), landmark.french)
    return Phrase(tokens(english, bit) + landmark.english, target)


def adjunct(draft: Draft, verb: Verb, tense: str) -> Phrase | None:
    early = draft.rng.chance(0.5)
    return time(draft, verb, tense) if early else place(draft, lexicon.PLACES)


def put_time(draft: Draft, main: Clause, added: Phrase) -> Phrase:
    """Add an expression of time at the end or, with a comma, at the beginning."""
    if draft.rng.chance(0.7):
        return main.extend(added).statement()
    return concatenate(added, word(draft, ",", ","), main.statement())


def destination(draft: Draft, verb: Verb) -> Phrase:
    """Return where to, where from or where, as *go*, *come* or *live* asks."""
    rng = draft.rng
    bit, goal = draft.link(), draft.link()
    preposition = {"go": "to", "come": "from", "live": "in"}[verb.english]
    if rng.chance(0.3) and verb is not lexicon.LIVE:
        noun = draw_noun(draft, "building")
        where = noun_phrase(draft, noun, determiner="the", plural=False, share=0.1)
        joint = "à" if verb is lexicon.GO else "de"
        french = with_preposition([(joint, bit)], where.french)
        return Phrase([(preposition, bit), *where.english], french, head=noun.english)
    if rng.chance(0.25):
        source, target = rng.draw(lexicon.CITIES)
        joint = "de" if verb is lexicon.COME else "à"
    else:
        source, target, gender = rng.draw(lexicon.COUNTRIES)
        # *en France*, *au Canada*: the gender takes the place of an article
        feminine = gender == "f"
        joint = ("de" if feminine else "du") if verb is lexicon.COME else "en" if feminine else "au"
    return Phrase([(preposition, bit), (source, goal)], [(joint, bit), (target, goal)], head=source)
