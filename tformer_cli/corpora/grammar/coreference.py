"""The family of *The animal didn't cross the street because it was too tired (too wide)*.

The adjective decides the referent of *it*: some describe only animate beings, the others only
places and things; French *il* or *elle* follows from the gender of that noun.
"""

from tformer_cli.corpora.grammar.choices import Pool
from tformer_cli.corpora.grammar.clauses import Clause, be, clause, infinitive_phrase, predicate
from tformer_cli.corpora.grammar.phrases import (
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
from tformer_cli.corpora.grammar.words import lexicon
from tformer_cli.corpora.grammar.words.entries import Adjective, Noun, Verb

FAMILY_VERBS = Pool(
    lexicon.named("cross eat avoid carry climb drink enter leave buy open read explore touch push "
                  "find clean wear visit"),
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
    if rng.chance(0.18) and tense != "future":  # *can* has no future
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
    if noun is None:  # a name has none, and is described like any person
        adjective: Adjective | None = rng.pick([a for a in lexicon.ANIMATE if a.sign == sign])
    else:
        adjective = _reason(draft, noun, sign)
    if adjective is None:
        return None
    draft.combine(subject.head, verb.english, obj.head)
    main = _main_clause(draft, subject, verb, obj, tense, negated).statement()
    referent = subject if about_subject else obj
    # Some adjectives have no degrees: no *too broken*
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
    if verb.english in AVERSE or verb.french_preposition:  # *le* is a direct object
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
    made = family(draft, tense="past")
    if made is None:
        return None
    comma = draft.link()
    opening = expression(draft, draft.rng.draw(lexicon.PAST_TIMES))
    return concatenate(opening, Phrase([(",", comma)], [(",", comma)]), made)


def reported_family(draft: Draft) -> Phrase | None:
    """Return *Mary thinks that the animal didn't cross the street because …*."""
    rng = draft.rng
    speaker = someone(draft, "human", names=0.3)
    main = clause(draft, speaker, rng.draw(lexicon.OPINION), "present").statement()
    made = family(draft, tense="past")
    return concatenate(main, word(draft, "that", "que"), made) if made else None


def winograd(draft: Draft, english_adjective: str) -> Phrase:
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
