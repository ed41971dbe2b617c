"""Everyday sentences: greetings, introductions, likes and dislikes, suggestions, small talk."""

from collections.abc import Callable
from dataclasses import replace

from tformer_cli.plugins.built_in.grammar.adjuncts import destination
from tformer_cli.plugins.built_in.grammar.choices import Pool
from tformer_cli.plugins.built_in.grammar.clauses import Clause, be, clause, question
from tformer_cli.plugins.built_in.grammar.constructions import draw_object
from tformer_cli.plugins.built_in.grammar.determiners import french_determiner
from tformer_cli.plugins.built_in.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    expression,
    name,
    noun_phrase,
    pronoun,
    someone,
    tokens,
    word,
)
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Expression, Noun
from tformer_cli.plugins.built_in.grammar.words.morphology_english import indefinite_article

OWNERS = Pool(["my", "your", "his", "her"], [6.0, 4, 3, 3])
CALLED = {
    "my": ("je", "me", "appelle"), "your": ("vous", "vous", "appelez"),
    "his": ("il", "se", "appelle"), "her": ("elle", "se", "appelle"),
}  # fmt: skip
"""The French subject, reflexive pronoun and verb of *my name is*."""
ADDRESSED_SHARE = 0.75


def _address(draft: Draft, phrase: Phrase) -> Phrase:
    """Adds whom the speaker talks to: *Anna*, *sir*, *my friend*."""
    rng = draft.rng
    # Without a combination a sentence is training material: what everybody says, everybody learns
    if not rng.chance(ADDRESSED_SHARE):
        return phrase
    is_named = rng.chance(0.7)
    person = name(draft) if is_named else expression(draft, rng.draw(lexicon.ADDRESSES))
    if is_named and rng.chance(0.15):
        other = name(draft)
        if other.head != person.head:
            person = concatenate(person, word(draft, "and", "et"), other)
    draft.combine(phrase.head, " ".join(token for token, _ in person.english))
    return concatenate(phrase, word(draft, ",", ","), person)


def _draw_expression(draft: Draft, pool: Pool[Expression]) -> Phrase:
    """Draws a fixed expression, and often whom it addresses."""
    fixed = draft.rng.draw(pool)
    phrase = expression(draft, fixed)
    phrase.head = " ".join(fixed.english)
    return _address(draft, phrase)


def greeting(draft: Draft) -> Phrase:
    """Return *Good morning, Anna!*, *Thank you very much!*."""
    return _draw_expression(draft, lexicon.GREETINGS)


def saying(draft: Draft) -> Phrase:
    """Return a statement of small talk, such as *I don't understand*."""
    return _draw_expression(draft, lexicon.SAYINGS)


def inquiry(draft: Draft) -> Phrase:
    """Return *How are you, Paul?*, *How is your mother?*, *Are you a teacher?*."""
    rng = draft.rng
    roll = rng.roll()
    if roll < 0.5:
        return _draw_expression(draft, lexicon.INQUIRIES)
    if roll < 0.65:
        return question(_profession(draft, pronoun(draft, rng.pick(["you", "you", "he", "she"]))))
    owned = _draw_where(draft, rng.chance(0.5), lambda noun: "owned" in noun.tags)
    person = noun_phrase(draft, owned, determiner=rng.draw(OWNERS), plural=False, share=0.0)
    asked, verb = draft.link(), draft.link()
    opening, french = ("how", "comment") if roll < 0.8 else ("how old", "quel âge")
    finite = lexicon.GO if opening == "how" else lexicon.HAVE
    draft.combine(opening, person.english[0][0], person.head)
    return Phrase(
        [*tokens(opening, asked), ("is", verb), *person.english],
        [*tokens(french, asked), (finite.present[1], verb), *person.french],
    )


def introduction(draft: Draft) -> Phrase:
    """Return *My name is Anna*, *This is my brother*, *I'm a teacher*, *She's from France*."""
    rng = draft.rng
    roll = rng.roll()
    if roll < 0.45:
        subject = (
            name(draft) if rng.chance(0.25) else pronoun(draft, rng.pick(["I", "I", "he", "she"]))
        )
        about = _profession if roll < 0.27 else _origin
        return about(draft, subject).statement()
    person = name(draft)
    whose = rng.draw(OWNERS)
    if roll < 0.6:
        if rng.chance(0.5):
            relative = _draw_where(draft, rng.chance(0.5), lambda noun: "owned" in noun.tags)
            person = noun_phrase(draft, relative, determiner=whose, plural=False, share=0.0)
        draft.combine("this", "be", *(token for token, _ in person.english))
        bit = draft.link()
        return concatenate(Phrase(tokens("this is", bit), [("voici", bit)]), person)
    called = draft.link()
    if roll < 0.9:
        if whose in ("his", "her"):  # *her name is Eva*
            whose = "her" if person.feminine else "his"
        owner, (french_subject, reflexive, verb) = draft.link(), CALLED[whose]
        draft.combine(whose, "name", person.head)
        english = [(whose, owner), *tokens("name is", called)]
        french = [(french_subject, owner), (reflexive, called), (verb, called)]
        opening = whose == "my" and rng.chance(0.4)
        hello = [word(draft, "hello", "bonjour"), word(draft, ",", ",")] if opening else []
        return concatenate(*hello, Phrase(english, french), person)
    relative = _draw_where(draft, person.feminine, lambda noun: "owned" in noun.tags)
    owner_phrase = noun_phrase(draft, relative, determiner=whose, plural=False, share=0.0)
    draft.combine(relative.english, "name", person.head)
    return concatenate(
        Phrase(
            [*owner_phrase.english, *tokens("'s name is", called)],
            [*owner_phrase.french, ("se", called), ("appelle", called)],
        ),
        person,
    )


def _profession(draft: Draft, subject: Phrase) -> Clause:
    """Return *I'm a teacher* / *Je suis professeur*: French has no article there."""
    noun = _draw_where(draft, subject.feminine, lambda noun: noun.english in lexicon.PROFESSIONS)
    bit = draft.link()
    draft.combine(subject.head, "be", noun.english)
    english = [(indefinite_article(noun.english), bit), (noun.english, bit)]
    return be(draft, subject, "present").extend(Phrase(english, [(noun.french, bit)]))


def _origin(draft: Draft, subject: Phrase) -> Clause:
    """Return *I'm from Paris* / *Je viens de Paris*."""
    main = be(draft, subject, "present")
    main.finite = [(lexicon.COME.present[subject.person], main.finite[0][1])]
    where = destination(draft, lexicon.COME)
    draft.combine(subject.head, "be", "from", where.head)
    return main.extend(where)


def _draw_where(draft: Draft, feminine: bool, suits: Callable[[Noun], bool]) -> Noun:
    """Draws a man or a woman until one suits."""
    while not suits(noun := draw_noun(draft, "woman_" if feminine else "man_")):
        pass
    return noun


LIKED = "food drink animal song show text pastime"
LIKING = Pool(lexicon.find_verbs("like love hate"), [5.0, 4.0, 1.5])


def _likes(draft: Draft, *, is_question: bool) -> Phrase:
    rng = draft.rng
    noun = draw_noun(draft, LIKED)
    verb = rng.draw(LIKING)
    if is_question:
        subject = pronoun(draft, rng.pick(["you", "you", "you", "he", "she", "they"]))
    else:
        subject = someone(draft, "human", pronouns=0.6, names=0.25)
    negated = not is_question and verb.english == "like" and rng.chance(0.3)
    bit = draft.link()
    plural = noun.countable
    kind = french_determiner("the", noun.feminine, plural, noun.french)
    obj = Phrase(
        [(noun.english_plural if plural else noun.english, bit)],
        [(kind, bit), (noun.french_plural if plural else noun.french, bit)],
        head=noun.english,
        noun=noun,
    )
    draft.combine(subject.head, verb.english, noun.english)
    main = clause(
        draft, subject, verb, "present", obj=obj, negated=negated, is_question=is_question
    )
    return question(main) if is_question else main.statement()


# One adores things, and loves people.
LOVING_YOU = replace(lexicon.find_verbs("like")[0], english="love", third="loves")


def liking(draft: Draft) -> Phrase:
    """Return *I love pizza* / *J'adore la pizza*: things in general; or *She loves you*."""
    rng = draft.rng
    if rng.chance(0.1):
        subject = (
            name(draft) if rng.chance(0.5) else pronoun(draft, rng.pick(["I", "I", "she", "he"]))
        )
        bit = draft.link()
        you = Phrase([("you", bit)], [], pronoun=True, clitic="vous", links=bit)
        main = clause(draft, subject, LOVING_YOU, "present", obj=you, negated=rng.chance(0.25))
        return _address(draft, main.statement())
    return _likes(draft, is_question=False)


def liking_question(draft: Draft) -> Phrase:
    """Return *Do you like coffee?* / *Aimez-vous le café ?*."""
    return _likes(draft, is_question=True)


SHARED = Pool(lexicon.find_verbs(
    "eat find buy read drink open visit help watch follow clean prepare build paint sell invite "
    "explore taste wash close repair"
))  # fmt: skip
INTRANSITIVE = Pool([
    verb for verb in lexicon.INTRANSITIVE.items
    if not verb.reflexive and verb.english in (
        "sleep", "run", "sing", "play", "work", "wait", "swim", "dance", "walk", "leave", "stay",
        "travel", "laugh", "jump",
    )
])  # fmt: skip


def suggestion(draft: Draft) -> Phrase:
    """Return *Let's go!* / *Allons-y !*, *Let's eat the cake!* / *Mangeons le gâteau !*."""
    rng = draft.rng
    lets, bit = draft.link(), draft.link()
    start = [("let", lets), ("'s", lets)]
    roll = rng.roll()
    if roll < 0.2:
        go = Phrase([*start, ("go", bit)], [("allons-y", lets | bit)], head="let's go")
        return _address(draft, go)
    if roll < 0.45:
        goal = destination(draft, lexicon.GO)
        draft.combine("let's", "go", goal.head)
        going = Phrase([*start, ("go", bit)], [("allons", lets | bit)])
        return concatenate(going, goal)
    if roll < 0.65:
        verb = rng.draw(INTRANSITIVE)
        alone = Phrase(
            [*start, *tokens(f"{verb.english} {verb.particle}", bit)],
            [(verb.present[2], lets | bit)],
            head=f"let's {verb.english}",
        )
        return _address(draft, alone)
    verb = rng.draw(SHARED)
    obj = draw_object(draft, verb, False)
    draft.combine("let's", verb.english, obj.head)
    english = [*start, *tokens(f"{verb.english} {verb.particle}", bit), *obj.english]
    return Phrase(english, [(verb.present[2], lets | bit), *obj.french])
