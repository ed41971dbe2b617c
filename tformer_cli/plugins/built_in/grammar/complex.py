"""The constructions of several clauses: subordination, relatives, coordination."""

from tformer_cli.plugins.built_in.grammar.adjuncts import draw_tense
from tformer_cli.plugins.built_in.grammar.choices import Pool
from tformer_cli.plugins.built_in.grammar.clauses import (
    Clause,
    be,
    clause,
    infinitive_phrase,
    predicate,
)
from tformer_cli.plugins.built_in.grammar.constructions import draw_object
from tformer_cli.plugins.built_in.grammar.descriptions import ANIMATE, definite, draw_predicate
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
    standing_for,
    word,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Adjective, Noun, Verb

FAMILY_VERBS = Pool(
    lexicon.find_verbs("cross eat avoid carry climb drink enter leave buy open read explore touch "
                       "push find clean wear visit"),
    [40.0, 14, 9, 8, 8, 6, 5, 5, 6, 5, 5, 5, 3, 3, 3, 3, 3, 3],
)  # fmt: skip
FAMILY_OBJECTS = {
    "avoid": "way", "find": "portable food", "touch": "portable fixture food",
    "leave": "room_ town", "explore": "open_air room_",
}  # fmt: skip
DEGREES = {
    "-": (("too", "trop"), ("too", "trop"), ("too", "trop"), ("very", "très")),
    "+": (("very", "très"), ("", "")),
}
AVERSE = frozenset({"avoid", "leave", "clean"})
"""Verbs whose doing, not whose refusal, needs a reason against the object."""


def because(draft: Draft) -> Phrase:
    """Return *because*."""
    return word(draft, "because", "parce que")


def _actors(draft: Draft, verb: Verb) -> Phrase:
    """Draw the agent: mostly animals, whose pronoun is *it*, like that of things."""
    if "animal" in verb.subjects and draft.rng.chance(0.8):
        noun = draw_noun(draft, "animal", lexicon.STEEP)
        kind = "the" if draft.rng.chance(0.85) else "this"
        plural = draft.rng.chance(0.15)
        return noun_phrase(draft, noun, determiner=kind, plural=plural, share=0.08)
    return someone(draft, "human", pronouns=0.0, names=0.4)


def _object(draft: Draft, verb: Verb) -> Phrase:
    noun = draw_noun(draft, FAMILY_OBJECTS.get(verb.english, verb.objects), lexicon.STEEP)
    plural = draft.rng.chance(0.12)
    kind = "the" if draft.rng.chance(0.85) else "these" if plural and noun.countable else "this"
    return noun_phrase(draft, noun, determiner=kind, plural=plural, share=0.06)


def _main_clause(
    draft: Draft, subject: Phrase, verb: Verb, obj: Phrase, tense: str, negated: bool
) -> Clause:
    """Return the main clause, sometimes with *can*, *want* or *refuse*."""
    rng = draft.rng
    if rng.chance(0.18) and tense != "future":
        control = lexicon.CAN if negated and rng.chance(0.6) else lexicon.CONTROL.items[0]
        deed = infinitive_phrase(draft, control, subject, verb, obj)
        return clause(draft, subject, control, tense, negated=negated, infinitive=deed)
    return clause(draft, subject, verb, tense, obj=obj, negated=negated)


def _reason(draft: Draft, noun: Noun, sign: str) -> Adjective | None:
    pool = lexicon.reasons(noun, sign)
    return draft.rng.draw(pool) if pool else None


def reason_clause(
    draft: Draft, referent: Phrase, adjective: Adjective, tense: str, amount: tuple[str, str]
) -> Phrase:
    """Return *it was too wide* with the pronoun of ``referent``."""
    described = be(draft, standing_for(draft, referent), tense)
    if amount[0]:
        described.extend(word(draft, *amount))
    return described.extend(predicate(draft, adjective, referent)).statement()


def family(draft: Draft, tense: str = "") -> Phrase | None:
    """Return a sentence of the family, or None when no adjective fits the draw."""
    rng = draft.rng
    verb = rng.draw(FAMILY_VERBS)
    subject, obj = _actors(draft, verb), _object(draft, verb)
    negated = rng.chance(0.7) and verb.english not in AVERSE
    about_subject = rng.chance(0.5)
    sign = "-" if negated or verb.english in AVERSE else "+"
    tense = tense or ("past" if rng.chance(0.8) else "present")
    noun = subject.noun if about_subject else obj.noun
    if noun is None:
        adjective: Adjective | None = rng.pick([a for a in lexicon.ANIMATE if a.sign == sign])
    else:
        adjective = _reason(draft, noun, sign)
    if adjective is None:
        return None
    draft.combine(subject.head, verb.english, obj.head)
    main = _main_clause(draft, subject, verb, obj, tense, negated).statement()
    referent = subject if about_subject else obj
    amount = rng.pick(DEGREES[sign]) if adjective.english not in lexicon.ABSOLUTE else ("", "")
    reason = reason_clause(draft, referent, adjective, tense, amount)
    return concatenate(main, because(draft), reason)


def consequence(draft: Draft) -> Phrase | None:
    """Return *The street was too wide, so the animal didn't cross it*."""
    rng = draft.rng
    verb = rng.draw(FAMILY_VERBS)
    obj = _object(draft, verb)
    adjective = _reason(draft, obj.noun, "-") if obj.noun else None
    if adjective is None or adjective.english in lexicon.ABSOLUTE:
        return None
    if verb.english in AVERSE or verb.french_preposition:
        return None
    subject = _actors(draft, verb)
    draft.combine(subject.head, verb.english, obj.head)
    described = be(draft, obj, "past").extend(word(draft, "too", "trop"))
    described.extend(predicate(draft, adjective, obj))
    clitic = object_pronoun(draft, obj)
    second = clause(draft, subject, verb, "past", obj=clitic, negated=True)
    return concatenate(
        described.statement(), word(draft, ",", ","), word(draft, "so", "donc"), second.statement()
    )


def dated_family(draft: Draft) -> Phrase | None:
    """Return a sentence of the family in the past after an expression of time."""
    sentence = family(draft, tense="past")
    if sentence is None:
        return None
    comma = draft.link()
    opening = expression(draft, draft.rng.draw(lexicon.PAST_TIMES))
    return concatenate(opening, Phrase([(",", comma)], [(",", comma)]), sentence)


def reported_family(draft: Draft) -> Phrase | None:
    """Return *Mary thinks that the animal didn't cross the street because …*."""
    rng = draft.rng
    speaker = someone(draft, "human", names=0.3)
    main = clause(draft, speaker, rng.draw(lexicon.OPINION), "present").statement()
    sentence = family(draft, tense="past")
    return concatenate(main, word(draft, "that", "que"), sentence) if sentence else None


def winograd(draft: Draft, english_adjective: str) -> Phrase:
    """Return one of the two sentences that gave the family its name."""
    draft.combine("animal", "cross", "street")
    subject = noun_phrase(draft, lexicon.NOUN["animal"], determiner="the", plural=False, share=0.0)
    obj = noun_phrase(draft, lexicon.NOUN["street"], determiner="the", plural=False, share=0.0)
    verb = FAMILY_VERBS.items[0]
    referent = subject if english_adjective == "tired" else obj
    options = lexicon.specific(referent.noun) if referent.noun else []
    adjective = next(a for a in options if a.english == english_adjective)
    main = clause(draft, subject, verb, "past", obj=obj, negated=True).statement()
    reason = reason_clause(draft, referent, adjective, "past", ("too", "trop"))
    return concatenate(main, because(draft), reason)


def deed(draft: Draft, subject: Phrase, tense: str, negated: bool = False) -> Clause:
    rng = draft.rng
    tags = "animal" if subject.noun and "animal" in subject.noun.tags else "human"
    pool = lexicon.TRANSITIVE if rng.chance(0.6) else lexicon.INTRANSITIVE
    while True:
        verb = rng.draw(pool)
        if tags in verb.subjects.split() and not verb.stative and verb.english != "die":
            break
    obj = draw_object(draft, verb, negated) if verb.objects else None
    draft.combine(subject.head, verb.english, obj.head if obj else "")
    return clause(draft, subject, verb, tense, obj=obj, negated=negated)


def actor(draft: Draft) -> Phrase:
    if draft.rng.chance(0.25):
        return noun_phrase(draft, draw_noun(draft, "animal"), share=0.1)
    return someone(draft, "human", pronouns=0.25, names=0.25)


def reason(draft: Draft) -> Phrase:
    """Return *The girl left because she was tired*: the pronoun is the subject's."""
    rng = draft.rng
    subject = actor(draft)
    negated = rng.chance(0.5)
    tense = "past" if rng.chance(0.75) else "present"
    main = deed(draft, subject, tense, negated).statement()
    if rng.chance(0.2):
        other = someone(draft, "human", pronouns=0.1, names=0.4)
        return concatenate(main, because(draft), deed(draft, other, tense).statement())
    sign = "-" if negated else "+"  # what one does not do has a reason against it
    signs = [a for a in lexicon.ANIMATE if a.sign == sign and a.english not in lexicon.ABSOLUTE]
    amount = (
        ("too", "trop") if negated and rng.chance(0.6) else rng.pick([("", ""), ("very", "très")])
    )
    return concatenate(
        main, because(draft), reason_clause(draft, subject, rng.pick(signs), tense, amount)
    )


CONJUNCTIONS = Pool(["when", "if", "while"], [4.0, 4.0, 2.0])
FRENCH_CONJUNCTIONS = {"when": "quand", "if": "si", "while": "pendant que"}


def circumstance(draft: Draft) -> Phrase:
    """Return a sentence with *when*, *if* or *while*."""
    rng = draft.rng
    kind = rng.draw(CONJUNCTIONS)
    first, second = actor(draft), someone(draft, "human animal", pronouns=0.2, names=0.2)
    main_tense, side_tense = {
        "when": ("past_progressive", "past"),
        "if": ("future", "present"),  # English *if* refuses *will*
        "while": ("past", "past_progressive"),
    }[kind]
    main = deed(draft, first, main_tense, kind == "if" and rng.chance(0.3)).statement()
    side = deed(draft, second, side_tense).statement()
    conjunction = word(draft, kind, FRENCH_CONJUNCTIONS[kind])
    if rng.chance(0.6):
        return concatenate(main, conjunction, side)
    return concatenate(conjunction, side, word(draft, ",", ","), main)


def opinion(draft: Draft) -> Phrase | None:
    """Return *Mary thinks that the dog is hungry* with any clause after *that*."""
    rng = draft.rng
    verb = rng.draw(lexicon.OPINION)
    speaker = someone(draft, "human", names=0.3)
    tense = rng.pick(["present", "present", "past"])
    subject = describable_subject(draft)
    inner_tense = "past" if tense == "past" else rng.pick(["present", "present", "future"])
    if rng.chance(0.55):
        adjective = draw_predicate(draft, subject)
        if adjective is None:
            return None
        draft.combine(subject.head, "be", adjective.head)
        inner = be(draft, subject, inner_tense).extend(adjective)
    else:
        inner = deed(
            draft, actor(draft), "past" if tense == "present" and rng.chance(0.4) else "future"
        )
        if tense == "past":  # a future seen from the past is a conditional, which verbs lack here
            return None
    main = clause(draft, speaker, verb, tense).statement()
    return concatenate(main, word(draft, "that", "que"), inner.statement())


def describable_subject(draft: Draft) -> Phrase:
    """Return a definite subject of any class."""
    tags = draft.rng.pick(["human", "animal", "way", "building", "food", "text", "vehicle", "idea"])
    if tags == "human" and draft.rng.chance(0.4):
        return someone(draft, tags, pronouns=0.5, names=0.5)
    return noun_phrase(draft, draw_noun(draft, tags), determiner=definite(draft))


def subject_relative(draft: Draft) -> Phrase | None:
    """Return *The boy who lost his key is crying*, *who* or *that* being *qui*."""
    rng = draft.rng
    noun = draw_noun(draft, rng.pick(["human", "human", "animal"]))
    plural = rng.chance(0.2)
    kind = "the" if plural else rng.pick(["the", "the", "the", "this", "a"])
    head = noun_phrase(draft, noun, determiner=kind, plural=plural, share=0.1)
    pronoun = word(draft, "who" if "human" in noun.tags else "that", "qui")
    inner = deed(draft, head, rng.pick(["past", "past", "present"]))
    head_with = Phrase(
        head.english + pronoun.english + inner.aux + inner.rest,
        head.french + pronoun.french + inner.finite + inner.tail,
        head.person, head.feminine, head.plural, head.head, head.noun,
    )  # fmt: skip
    if rng.chance(0.4):
        adjective = draw_predicate(draft, head)
        if adjective is None:
            return None
        draft.combine(head.head, "be", adjective.head)
        tense = rng.pick(["present", "past"])
        return be(draft, head_with, tense).extend(adjective).statement()
    return deed(draft, head_with, rng.pick(["past", "future", "present"])).statement()


def _relative_verb(draft: Draft) -> Verb | None:
    verb = draft.rng.draw(lexicon.TRANSITIVE)
    # *que* stands for direct objects only; others would need *dont* or *auquel*
    return None if verb.french_preposition or "human" not in verb.subjects else verb


def object_relative(draft: Draft) -> Phrase | None:
    """Return *The apples that she ate were ripe* / *… qu'elle a mangées étaient mûres*."""
    rng = draft.rng
    verb = _relative_verb(draft)
    if verb is None:
        return None
    noun = draw_noun(draft, verb.objects)
    head = noun_phrase(draft, noun, determiner="the", share=0.1)
    inner_subject = someone(draft, "human", pronouns=0.3, names=0.25)
    # The object stands before its verb, so that the participle agrees: *mangées*
    inner = clause(draft, inner_subject, verb, "past", gap=head)
    draft.combine(inner_subject.head, verb.english, head.head)
    joined = concatenate(head, word(draft, "that", "que"), inner.statement())
    # For the outer verb the noun and its clause are one phrase, with the noun's agreement
    whole = Phrase(joined.english, joined.french, head.person, head.feminine, head.plural,
                   head.head, head.noun)  # fmt: skip
    if rng.chance(0.65):
        adjective = draw_predicate(draft, head)
        if adjective is None:
            return None
        draft.combine(head.head, "be", adjective.head)
        main = be(draft, whole, rng.pick(["present", "past", "past"]))
        if rng.chance(0.3):
            main.extend(word(draft, "very", "très"))
        return main.extend(adjective).statement()
    outer = rng.draw(lexicon.TRANSITIVE)
    # None: the caller draws another construction, so that the words always fit
    if (
        noun.tags.isdisjoint(outer.objects.split())
        or outer is verb
        or "human" not in outer.subjects
    ):
        return None
    subject = someone(draft, "human")
    draft.combine(subject.head, outer.english, head.head)
    return clause(draft, subject, outer, draw_tense(draft, outer), obj=whole).statement()


def contrast(draft: Draft) -> Phrase:
    """Return two clauses joined by *but* or *and*; the second may take up the first's subject."""
    rng = draft.rng
    subject = actor(draft)
    tense = rng.pick(["past", "past", "future"])
    if rng.chance(0.5):
        first = deed(draft, subject, tense)
        other = standing_for(draft, subject)
        other.noun = subject.noun  # `deed` finds verbs for its class
        second = deed(draft, other, tense, negated=True)
    else:
        first = deed(draft, subject, tense)
        second = deed(draft, actor(draft), tense, negated=rng.chance(0.6))
    joint = word(draft, "but", "mais") if rng.chance(0.7) else word(draft, "and", "et")
    return concatenate(first.statement(), word(draft, ",", ","), joint, second.statement())


def joined_subjects(draft: Draft) -> Phrase:
    """Return *Mary and her brother are singing*."""
    first = someone(draft, "human", pronouns=0.0, names=0.5)
    second = someone(draft, "human", pronouns=0.0, names=0.3)
    both = concatenate(first, word(draft, "and", "et"), second)
    both.person, both.plural = 4, True
    both.feminine = first.feminine and second.feminine  # one masculine makes the group masculine
    both.head = first.head
    if draft.rng.chance(0.3):
        adjective = draft.rng.draw(ANIMATE)
        draft.combine(first.head, second.head, adjective.english)
        main = be(draft, both, draft.rng.pick(["present", "past"]))
        return main.extend(predicate(draft, adjective, both)).statement()
    return deed(draft, both, draft.rng.pick(["past", "past", "future", "progressive"])).statement()


def joined_objects(draft: Draft) -> Phrase:
    """Return *The man bought an apple and three pears*."""
    verb = draft.rng.draw(lexicon.TRANSITIVE)
    subject = someone(draft, verb.subjects)
    first, second = draw_object(draft, verb), draw_object(draft, verb)
    draft.combine(subject.head, verb.english, first.head)
    draft.combine(subject.head, verb.english, second.head)
    main = clause(draft, subject, verb, draw_tense(draft, verb), obj=first)
    joint = word(draft, "and", "et")
    link = main.finite[-1][1]
    again = second.french
    if verb.french_preposition:  # French repeats it before each object
        again = with_preposition([(verb.french_preposition, link)], second.french)
    return main.extend(concatenate(joint, Phrase(second.english, again))).statement()
