"""Statements of one clause about an action.

Each function takes a `Draft` and returns a `Phrase` without the final mark, or None if the draw
does not make a sentence.
"""

from tformer_cli.plugins.built_in.grammar.adjuncts import (
    NEGATION_SHARE,
    STATE_TENSES,
    TENSES,
    adjunct,
    destination,
    draw_tense,
    frequency,
    put_time,
    time,
)
from tformer_cli.plugins.built_in.grammar.choices import Pool
from tformer_cli.plugins.built_in.grammar.clauses import clause, infinitive_phrase
from tformer_cli.plugins.built_in.grammar.descriptions import definite
from tformer_cli.plugins.built_in.grammar.determiners import with_preposition
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    expression,
    noun_phrase,
    object_pronoun,
    someone,
    tokens,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Verb
from tformer_cli.plugins.built_in.grammar.words.morphology_french import agree


def draw_object(draft: Draft, verb: Verb, negated: bool = False) -> Phrase:
    noun = draw_noun(draft, verb.objects)
    if "instrument" in verb.objects:  # *play the piano*, any of them
        return noun_phrase(draft, noun, determiner="the", plural=False, share=0.0)
    kind = ""
    if verb.french_preposition and (draft.rng.chance(0.7) or "mass" in noun.tags):
        kind = "the"
    # Only a direct object takes *de* under negation
    return noun_phrase(
        draft, noun, determiner=kind, negated=negated and not verb.french_preposition
    )


def transitive(draft: Draft) -> Phrase:
    rng = draft.rng
    verb = rng.draw(lexicon.TRANSITIVE if rng.chance(0.88) else lexicon.PREPOSITIONAL)
    subject = someone(draft, verb.subjects)
    tense = draw_tense(draft, verb)
    negated = rng.chance(NEGATION_SHARE)
    obj = draw_object(draft, verb, negated)
    draft.combine(subject.head, verb.english, obj.head)
    adverb = frequency(draft, tense, negated)
    main = clause(draft, subject, verb, tense, obj=obj, negated=negated, adverb=adverb)
    if adverb is None and rng.chance(0.3):
        added = time(draft, verb, tense)
        if added:
            return put_time(draft, main, added)
    return main.statement()


def intransitive(draft: Draft) -> Phrase:
    """Return *The old man is sleeping in the garden*."""
    rng = draft.rng
    verb = rng.draw(lexicon.INTRANSITIVE)
    subject = someone(draft, verb.subjects)
    tense = draw_tense(draft, verb)
    negated = rng.chance(NEGATION_SHARE)
    adverb = frequency(draft, tense, negated)
    main = clause(draft, subject, verb, tense, negated=negated, adverb=adverb)
    added: Phrase | None = None
    if verb.english in ("run", "walk", "swim", "sing", "dance", "work", "fly") and rng.chance(0.3):
        added = expression(draft, rng.draw(lexicon.MANNER))
    elif rng.chance(0.65) and verb.english not in ("shine", "disappear", "leave", "escape"):
        added = adjunct(draft, verb, tense)
    draft.combine(subject.head, verb.english, "")
    return main.extend(added).statement() if added else main.statement()


def giving(draft: Draft) -> Phrase:
    """Return *The girl gave a book to her friend*."""
    rng = draft.rng
    verb = rng.draw(lexicon.DITRANSITIVE)
    subject = someone(draft, "human")
    negated = rng.chance(NEGATION_SHARE)
    obj = draw_object(draft, verb, negated)
    # A pronoun would need another form: *to him*, *lui*
    receiver = someone(draft, "human", pronouns=0.0)
    main = clause(draft, subject, verb, draw_tense(draft, verb), obj=obj, negated=negated)
    bit = draft.link()
    to = Phrase([("to", bit), *receiver.english], with_preposition([("à", bit)], receiver.french))
    draft.combine(subject.head, verb.english, obj.head)
    return main.extend(to).statement()


def control(draft: Draft) -> Phrase:
    """Return *He wants to cross the street*, also with *can*, *must*, *decide*, *try*."""
    rng = draft.rng
    roll = rng.roll()
    control_verb = (
        lexicon.CAN if roll < 0.3 else lexicon.MUST if roll < 0.42 else rng.draw(lexicon.CONTROL)
    )
    verb = rng.draw(lexicon.TRANSITIVE if rng.chance(0.7) else lexicon.INTRANSITIVE)
    while verb.stative or verb.english in ("disappear", "die", "get", "shine", "fall", "bark"):
        verb = rng.draw(lexicon.TRANSITIVE)
    human = verb.subjects.split()[0] if "human" in verb.subjects else verb.subjects
    subject = someone(draft, human)
    negated = rng.chance(0.2)
    modal = control_verb in (lexicon.CAN, lexicon.MUST)
    # *must* has no past, and *can* no future
    tense = "present" if control_verb is lexicon.MUST else draw_tense(draft, control_verb)
    tense = "past" if modal and tense == "future" else tense
    obj = (
        draw_object(draft, verb, negated and control_verb is lexicon.CAN) if verb.objects else None
    )
    deed = infinitive_phrase(draft, control_verb, subject, verb, obj)
    draft.combine(subject.head, verb.english, obj.head if obj else "")
    return clause(draft, subject, control_verb, tense, negated=negated, infinitive=deed).statement()


TRAVEL_VERBS = Pool([lexicon.GO, lexicon.COME, lexicon.LIVE], [5.0, 2.0, 2.0])


def travel(draft: Draft) -> Phrase:
    """Return *Mary went to France last year*: countries, cities and places with *to* and *from*."""
    rng = draft.rng
    subject = someone(draft, "human", names=0.3)
    verb = rng.draw(TRAVEL_VERBS)
    tense = rng.draw(STATE_TENSES if verb is lexicon.LIVE else TENSES)
    negated = rng.chance(0.15)
    main = clause(draft, subject, verb, tense, negated=negated)
    goal = destination(draft, verb)
    draft.combine(subject.head, verb.english, goal.head)
    main.extend(goal)
    added = time(draft, verb, tense) if rng.chance(0.4) else None
    return main.extend(added).statement() if added else main.statement()


def passive(draft: Draft) -> Phrase | None:
    """Return *The house was built by my uncle* / *… a été construite par mon oncle*."""
    rng = draft.rng
    verb = rng.draw(lexicon.TRANSITIVE)
    if (
        verb.stative
        or verb.etre  # with *être* a participle reads as a perfect
        or verb.english in ("leave", "enter", "climb", "look", "wait", "listen")
    ):
        return None
    noun = draw_noun(draft, verb.objects)
    subject = noun_phrase(draft, noun, determiner=definite(draft), share=0.15)
    # As in `giving`: *by him*
    agent = someone(draft, verb.subjects, pronouns=0.0)
    tense = "past" if rng.chance(0.8) else "future"
    draft.combine(agent.head, verb.english, subject.head)
    was, bit, by = draft.link(), draft.link(), draft.link()
    plural, person = subject.plural, subject.person
    participle = (agree(verb.participle, subject.feminine, plural), bit)
    if tense == "past":
        source = tokens("were" if plural else "was", was)
        # A simple past is a *passé composé*, that of *être* here
        target = tokens(f"{lexicon.HAVE.present[person]} été", was)
    else:
        source = tokens("will be", was)
        target = tokens(lexicon.BE.future[person], was)
    source += [(verb.past_participle, bit), *tokens(verb.particle, bit), ("by", by)]
    target += [participle, ("par", by)]
    return concatenate(subject, Phrase(source, target), agent)


GETTING = Pool(lexicon.find_verbs("find buy choose wash steal repair catch borrow prepare"))
USING = Pool(lexicon.find_verbs(
    "eat hide sell open read wash carry break paint repair drive drink touch lose throw cut push "
    "clean taste photograph feed wear"
))  # fmt: skip


def taking(draft: Draft) -> Phrase | None:
    """Return *The boy found the apple and ate it* / *… et l'a mangée*: the object comes back."""
    rng = draft.rng
    first, second = rng.draw(GETTING), rng.draw(USING)
    noun = draw_noun(draft, first.objects)
    if first is second or "human" in noun.tags or noun.tags.isdisjoint(second.objects.split()):
        return None
    subject = someone(draft, "human", names=0.25)
    tense = "past" if rng.chance(0.8) else "future"
    plural = rng.chance(0.25)
    kind = "the" if plural or rng.chance(0.6) else rng.pick(["a", "this"])
    kind = "some" if kind == "a" and not noun.countable else kind
    obj = noun_phrase(draft, noun, determiner=kind, plural=plural)
    draft.combine(subject.head, first.english, obj.head)
    draft.combine(subject.head, second.english, obj.head)
    statement = clause(draft, subject, first, tense, obj=obj).statement()
    two = clause(draft, subject, second, tense, obj=object_pronoun(draft, obj))
    bit = draft.link()
    again = Phrase([("and", bit), *two.aux, *two.rest], [("et", bit), *two.finite, *two.tail])
    return concatenate(statement, again)
