"""Statements of a state: description, comparison, existence, possession, age, weather."""

from tformer_cli.plugins.built_in.grammar.adjuncts import (
    STATE_TENSES,
    destination,
    frequency,
    place,
    time,
)
from tformer_cli.plugins.built_in.grammar.choices import Pool
from tformer_cli.plugins.built_in.grammar.clauses import (
    CONTRACTED,
    CONTRACTED_SHARE,
    be,
    clause,
    predicate,
)
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    expression,
    noun_phrase,
    someone,
    tokens,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.morphology_english import comparative

DESCRIBED = (
    "human animal place thing food text idea show song clothes drink water_way fixture room_ crop"
)


def describable(draft: Draft, tags: str = DESCRIBED) -> Phrase:
    if draft.rng.chance(0.35):
        return someone(draft, "human", pronouns=0.4, names=0.25)
    return noun_phrase(draft, draw_noun(draft, tags), determiner=definite(draft))


POSSESSIVES = Pool(["my", "your", "his", "her", "our", "their"])
ANIMATE = Pool(lexicon.ANIMATE + lexicon.HUMAN_ONLY)


def definite(draft: Draft) -> str:
    """Return a determiner that points to something known: articles above all."""
    roll = draft.rng.roll()
    return "the" if roll < 0.7 else "owner" if roll < 0.8 else draft.rng.draw(POSSESSIVES)


def draw_predicate(draft: Draft, subject: Phrase) -> Phrase | None:
    """Return an adjective for ``subject``, agreeing; its lemma is the head."""
    pool = lexicon.predicates(subject.noun) if subject.noun else ANIMATE
    if pool is None:
        return None
    adjective = draft.rng.draw(pool)
    phrase = predicate(draft, adjective, subject)
    phrase.head = adjective.english
    return phrase


def description(draft: Draft) -> Phrase | None:
    """Return *The streets were very wide*."""
    rng = draft.rng
    subject = describable(draft)
    tense = rng.draw(STATE_TENSES)
    negated = rng.chance(0.2)
    adjective = draw_predicate(draft, subject)
    if adjective is None:
        return None
    adverb = frequency(draft, tense, negated)
    main = clause(draft, subject, lexicon.BE, tense, negated=negated, adverb=adverb)
    if rng.chance(0.4) and adverb is None and not negated:
        main.extend(expression(draft, rng.draw(lexicon.DEGREES)))
    draft.combine(subject.head, "be", adjective.head)
    return main.extend(adjective).statement()


def comparison(draft: Draft) -> Phrase | None:
    """Return *The lion is stronger than the wolf*: more, less or as much."""
    rng = draft.rng
    tags = rng.pick(
        ["animal", "human", "way", "building", "vehicle", "text", "climbable", "song", "water_way"]
    )
    pool = lexicon.nouns(tags)
    first, second = (
        noun_phrase(draft, rng.draw(pool), determiner="the", share=0.05) for _ in range(2)
    )
    options = lexicon.predicates(first.noun) if first.noun else None
    if first.head == second.head or options is None:  # nothing is wider than itself
        return None
    adjective = rng.draw(options)
    if adjective.english in lexicon.ABSOLUTE:
        return None
    draft.combine(first.head, "be", adjective.english)
    main = be(draft, first, rng.draw(STATE_TENSES))
    compared = _comparative(draft, adjective.english, predicate(draft, adjective, first), second)
    return main.extend(compared).statement()


def _comparative(draft: Draft, lemma: str, adjective: Phrase, second: Phrase) -> Phrase:
    than = draft.link()
    link = adjective.english[0][1]
    roll = draft.rng.roll()
    if roll < 0.65:
        return Phrase(
            [*tokens(comparative(lemma), link), ("than", than), *second.english],
            [("plus", link), *adjective.french, ("que", than), *second.french],
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
    rng = draft.rng
    kind = rng.draw(PRESENCE_POOL)
    noun = draw_noun(draft, kind)
    negated = rng.chance(0.2)
    plural = noun.countable and rng.chance(0.45)
    mass = not noun.countable
    # *There is* introduces something new, so *the* and *my* would not fit
    determiner = "some" if mass else rng.pick(["number", "some", "many"]) if plural else "a"
    thing = noun_phrase(draft, noun, determiner=determiner, plural=plural, negated=negated)
    past = rng.chance(0.4)
    there, links = draft.link(), draft.link()
    form = ("were" if past else "are") if plural else "was" if past else "is"
    negation = draft.link()
    english = [("there", there), (form, links), *([("n't", negation)] if negated else [])]
    before = [("ne", negation)] if negated else []
    french = [("il", there), *before, ("y", there), ("avait" if past else "a", links)]
    french += [("pas", negation)] if negated else []
    large = kind in ("human", "animal", "fixture")
    where = place(draft, lexicon.PLACES if large else lexicon.THING_PLACES)
    draft.combine("there", "be", noun.english)
    return concatenate(Phrase(english + thing.english, french + thing.french), where)


def possession(draft: Draft) -> Phrase:
    """Return *The boy has three dogs* or *The girl is twelve years old*."""
    rng = draft.rng
    subject = someone(draft, "human", names=0.25)
    tense = rng.draw(STATE_TENSES)
    if rng.chance(0.2):
        return _age(draft, subject, tense)
    negated = rng.chance(0.22)
    noun = draw_noun(draft, lexicon.HAVE.objects)
    plural = noun.countable and rng.chance(0.4)
    kind = (
        "some" if not noun.countable else rng.pick(["number", "number", "many"]) if plural else "a"
    )
    obj = noun_phrase(draft, noun, determiner=kind, plural=plural, negated=negated)
    draft.combine(subject.head, "have", noun.english)
    return clause(draft, subject, lexicon.HAVE, tense, obj=obj, negated=negated).statement()


def _age(draft: Draft, subject: Phrase, tense: str) -> Phrase:
    source, target = draft.rng.draw(lexicon.NUMBERS)
    main = be(draft, subject, tense)
    has = (lexicon.HAVE.present, lexicon.HAVE.imperfect, lexicon.HAVE.future)
    forms = has[("present", "past", "future").index(tense)]
    main.finite = [(forms[subject.person], main.finite[0][1])]  # one *has* years in French
    number, years = draft.link(), draft.link()
    age = Phrase(
        [(source, number), *tokens("years old", years)], [(target, number), ("ans", years)]
    )
    draft.combine(subject.head, "age", source)
    return main.extend(age).statement()


def weather(draft: Draft) -> Phrase:
    rng = draft.rng
    tense = rng.draw(STATE_TENSES)
    forms = {"present": "is", "past": "was", "future": "will be"}[tense]
    fait = {"present": "fait", "past": "faisait", "future": "fera"}[tense]
    it, verb, what = draft.link(), draft.link(), draft.link()
    source, target = rng.pick(lexicon.WEATHER.items)
    if rng.chance(CONTRACTED_SHARE):
        forms = CONTRACTED.get(forms, forms)
    phrase = Phrase(
        [("it", it), *tokens(forms, verb), (source, what)],
        [("il", it), (fait, verb), (target, what)],
    )
    # *In France*: weather is where *live* is
    phrase = concatenate(phrase, destination(draft, lexicon.LIVE)) if rng.chance(0.7) else phrase
    added = time(draft, lexicon.BE, tense)
    draft.combine("it", "be", source)
    return concatenate(phrase, added) if added else phrase
