"""Statements of a state: description, comparison, existence, possession, age, weather."""

from tformer_cli.grammar.adjuncts import (
    PLACE_POOL,
    STATE_TENSES,
    THING_PLACE_POOL,
    destination,
    frequency,
    place,
    time,
)
from tformer_cli.grammar.clauses import (
    clause,
    predicate,
)
from tformer_cli.grammar.dice import Pool
from tformer_cli.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    expression,
    noun_phrase,
    someone,
)
from tformer_cli.grammar.words import lexicon
from tformer_cli.grammar.words.adjectives import ABSOLUTE
from tformer_cli.grammar.words.morphology_english import comparative

DESCRIBED = (
    "human animal place thing food text idea show song clothes drink water_way fixture room_ crop"
)


def describable(draft: Draft, tags: str = DESCRIBED) -> Phrase:
    """Return a subject that adjectives can describe."""
    if draft.dice.chance(0.35):
        return someone(draft, "human", pronouns=0.4, names=0.25)
    return noun_phrase(draft, draft.dice.draw(lexicon.nouns(tags)), determiner=definite(draft))


def definite(draft: Draft) -> str:
    """Return a determiner that points to something known: articles above all."""
    roll = draft.dice.roll()
    return "the" if roll < 0.7 else "owner" if roll < 0.8 else draft.dice.draw(POSSESSIVES)


POSSESSIVES = Pool(["my", "your", "his", "her", "our", "their"])


ANIMATE = Pool(lexicon.ANIMATE + lexicon.HUMAN_ONLY)


def draw_predicate(draft: Draft, subject: Phrase) -> Phrase | None:
    """Return an adjective for ``subject``, agreeing; its lemma is the head."""
    pool = lexicon.predicates(subject.noun) if subject.noun else ANIMATE
    if pool is None:
        return None
    adjective = draft.dice.draw(pool)
    phrase = predicate(draft, adjective, subject)
    phrase.head = adjective.english
    return phrase


def description(draft: Draft) -> Phrase | None:
    """Return *The streets were very wide*."""
    dice = draft.dice
    subject = describable(draft)
    tense = dice.draw(STATE_TENSES)
    negated = dice.chance(0.2)
    adjective = draw_predicate(draft, subject)
    if adjective is None:
        return None
    adverb = frequency(draft, tense, negated)
    made = clause(draft, subject, lexicon.BE, tense, negated=negated, adverb=adverb)
    if dice.chance(0.4) and adverb is None and not negated:
        made.extend(expression(draft, dice.draw(lexicon.DEGREES)))
    draft.combine(subject.head, "be", adjective.head)
    return made.extend(adjective).statement()


def comparison(draft: Draft) -> Phrase | None:
    """Return *The lion is stronger than the wolf*: more, less or as much."""
    dice = draft.dice
    tags = dice.pick(
        ["animal", "human", "way", "building", "vehicle", "text", "climbable", "song", "water_way"]
    )
    pool = lexicon.nouns(tags)
    first, second = (
        noun_phrase(draft, dice.draw(pool), determiner="the", share=0.05) for _ in range(2)
    )
    options = lexicon.predicates(first.noun) if first.noun else None
    if first.head == second.head or options is None:
        return None
    adjective = dice.draw(options)
    if adjective.english in ABSOLUTE:
        return None
    draft.combine(first.head, "be", adjective.english)
    made = clause(draft, first, lexicon.BE, dice.draw(STATE_TENSES))
    compared = _comparative(draft, adjective.english, predicate(draft, adjective, first), second)
    return made.extend(compared).statement()


def _comparative(draft: Draft, lemma: str, adjective: Phrase, second: Phrase) -> Phrase:
    than = draft.link()
    link = adjective.english[0][1]
    roll = draft.dice.roll()
    if roll < 0.65:
        source, how = [(word, link) for word in comparative(lemma)], "plus"
        return Phrase(
            [*source, ("than", than), *second.english],
            [(how, link), *adjective.french, ("que", than), *second.french],
        )
    opening, joint, how = ("less", "than", "moins") if roll < 0.8 else ("as", "as", "aussi")
    bit = draft.link()
    return Phrase(
        [(opening, bit), *adjective.english, (joint, than), *second.english],
        [(how, bit), *adjective.french, ("que", than), *second.french],
    )


PRESENCE_POOL = Pool(["animal", "human", "portable", "food", "fixture"], [3.0, 2, 3, 2, 1])


def existence(draft: Draft) -> Phrase:
    """Return *There is a cat under the table*, *Il y a …*; negated *Il n'y a pas de …*."""
    dice = draft.dice
    kind = dice.draw(PRESENCE_POOL)
    noun = dice.draw(lexicon.nouns(kind))
    negated = dice.chance(0.2)
    plural = noun.countable and dice.chance(0.45)
    mass = not noun.countable
    determiner = "some" if mass else dice.pick(["number", "some", "many"]) if plural else "a"
    thing = noun_phrase(draft, noun, determiner=determiner, plural=plural, negated=negated)
    past = dice.chance(0.4)
    there, links = draft.link(), draft.link()
    form = ("were" if past else "are") if plural else "was" if past else "is"
    negation = draft.link()
    english = [("there", there), (form, links), *([("n't", negation)] if negated else [])]
    before = [("ne", negation)] if negated else []
    french = [("il", there), *before, ("y", there), ("avait" if past else "a", links)]
    french += [("pas", negation)] if negated else []
    large = kind in ("human", "animal", "fixture")
    where = place(draft, PLACE_POOL if large else THING_PLACE_POOL)
    draft.combine("there", "be", noun.english)
    return concatenate(Phrase(english + thing.english, french + thing.french), where)


def possession(draft: Draft) -> Phrase:
    """Return *The boy has three dogs* or *The girl is twelve years old*."""
    dice = draft.dice
    subject = someone(draft, "human", names=0.25)
    tense = dice.draw(STATE_TENSES)
    if dice.chance(0.2):
        return _age(draft, subject, tense)
    negated = dice.chance(0.22)
    noun = dice.draw(lexicon.nouns(lexicon.HAVE.objects))
    plural = noun.countable and dice.chance(0.4)
    kind = (
        "some" if not noun.countable else dice.pick(["number", "number", "many"]) if plural else "a"
    )
    obj = noun_phrase(draft, noun, determiner=kind, plural=plural, negated=negated)
    draft.combine(subject.head, "have", noun.english)
    return clause(draft, subject, lexicon.HAVE, tense, obj=obj, negated=negated).statement()


def _age(draft: Draft, subject: Phrase, tense: str) -> Phrase:
    source, target = draft.dice.draw(lexicon.NUMBERS)
    made = clause(draft, subject, lexicon.BE, tense)
    has = (lexicon.HAVE.present, lexicon.HAVE.imperfect, lexicon.HAVE.future)
    forms = has[("present", "past", "future").index(tense)]
    made.finite = [(forms[subject.person], made.finite[0][1])]
    number, years = draft.link(), draft.link()
    age = Phrase(
        [(source, number), ("years", years), ("old", years)], [(target, number), ("ans", years)]
    )
    draft.combine(subject.head, "age", source)
    return made.extend(age).statement()


WEATHER = (
    ("cold", "froid"),
    ("hot", "chaud"),
    ("cool", "frais"),
    ("dark", "noir"),
    ("mild", "doux"),
)


def weather(draft: Draft) -> Phrase:
    """Return a remark on the weather with impersonal *il*."""
    dice = draft.dice
    tense = dice.draw(STATE_TENSES)
    forms = {"present": "is", "past": "was", "future": "will be"}[tense].split()
    fait = {"present": "fait", "past": "faisait", "future": "fera"}[tense]
    it, be, what = draft.link(), draft.link(), draft.link()
    source, target = dice.pick(WEATHER)
    made = Phrase(
        [("it", it), *((w, be) for w in forms), (source, what)],
        [("il", it), (fait, be), (target, what)],
    )
    made = concatenate(made, place_of_weather(draft)) if dice.chance(0.7) else made
    added = time(draft, lexicon.BE, tense)
    draft.combine("it", "be", source)
    return concatenate(made, added) if added else made


def place_of_weather(draft: Draft) -> Phrase:
    """Return *in* with a country or a city."""
    return destination(draft, lexicon.LIVE)
