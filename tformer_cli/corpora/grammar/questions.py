"""Questions and commands."""

from tformer_cli.corpora.grammar.choices import Pool
from tformer_cli.corpora.grammar.clauses import Clause, be, clause, govern, question
from tformer_cli.corpora.grammar.complex import deed, describable_subject
from tformer_cli.corpora.grammar.constructions import draw_object
from tformer_cli.corpora.grammar.descriptions import draw_predicate
from tformer_cli.corpora.grammar.phrases import (
    Draft,
    Phrase,
    concatenate,
    draw_noun,
    noun_phrase,
    someone,
    tokens,
    word,
)
from tformer_cli.corpora.grammar.words import lexicon
from tformer_cli.corpora.grammar.words.entries import Verb

ASKED_TENSES = Pool(["past", "future", "present"], [5.0, 3.0, 2.0])
QUALITY = {(False, False): "quel", (True, False): "quelle",
           (False, True): "quels", (True, True): "quelles"}  # fmt: skip


def _human_verb(draft: Draft, prepositions: bool = True) -> Verb:
    while True:
        verb = draft.rng.draw(lexicon.TRANSITIVE)
        # A question would strand it
        simple = prepositions or not (verb.french_preposition or verb.particle)
        if "human" in verb.subjects and not verb.stative and simple:
            return verb


def _asked_deed(draft: Draft) -> Clause:
    verb = _human_verb(draft)
    subject = someone(draft, "human", pronouns=0.4)
    obj = draw_object(draft, verb)
    draft.combine(subject.head, verb.english, obj.head)
    return clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), obj=obj, asked=True)


def yes_no(draft: Draft) -> Phrase | None:
    """Return *Did the dog eat the apple*? or *Are you tired*?"""
    if draft.rng.chance(0.6):
        return question(_asked_deed(draft))
    subject = describable_subject(draft)
    adjective = draw_predicate(draft, subject)
    if adjective is None:
        return None
    draft.combine(subject.head, "be", adjective.head)
    asked = be(draft, subject, draft.rng.pick(["present", "past"]))
    return question(asked.extend(adjective))


ADVERBS = Pool([("why", "pourquoi"), ("where", "où"), ("when", "quand"), ("how", "comment")],
               [4.0, 3.0, 3.0, 1.0])  # fmt: skip


def adverbial(draft: Draft) -> Phrase:
    rng = draft.rng
    if rng.chance(0.2):
        return _where_is(draft)
    return question(_asked_deed(draft), word(draft, *rng.draw(ADVERBS)))


def _where_is(draft: Draft) -> Phrase:
    """Return *Where is the cat?* / *Où est le chat ?*: the noun itself is inverted."""
    rng = draft.rng
    tags = rng.pick(["human", "animal", "portable", "building"])
    subject = someone(draft, tags, pronouns=0.4)
    made = be(draft, subject, rng.pick(["present", "present", "past"]))
    draft.combine(subject.head, "be", "where")
    where = word(draft, "where", "où")
    if subject.pronoun:
        return question(made, where)
    return concatenate(where, Phrase(made.aux + subject.english, made.finite + subject.french))


def which(draft: Draft) -> Phrase:
    """Return *Which apples did you buy?*, *How many apples …*: the participle agrees."""
    rng = draft.rng
    verb = _human_verb(draft, prepositions=False)
    noun = draw_noun(draft, verb.objects)
    many = noun.countable and rng.chance(0.45)
    thing = noun_phrase(draft, noun, determiner="the", plural=many or None, share=0.0)
    bit = thing.english[0][1]
    if many:
        source, target = "how many", "combien de"
    else:
        source, target = "which", QUALITY[thing.feminine, thing.plural]
    # The question word takes the place of the article
    front = Phrase(tokens(source, bit) + thing.english[1:], tokens(target, bit) + thing.french[1:])
    subject = someone(draft, "human", pronouns=0.5)
    draft.combine(subject.head, verb.english, noun.english)
    asked = clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), gap=thing, asked=True)
    return question(asked, front)


def who(draft: Draft) -> Phrase:
    """Return *Who ate the cake?* / *Qui a mangé le gâteau ?*."""
    person = word(draft, "who", "qui")
    person.head = "who"
    return deed(draft, person, draft.rng.pick(["past", "past", "future"])).statement()


def what(draft: Draft) -> Phrase:
    """Return *What did the boy find?* / *Qu'est-ce que le garçon a trouvé ?*."""
    verb = _human_verb(draft, prepositions=False)
    subject = someone(draft, "human", pronouns=0.4)
    draft.combine(subject.head, verb.english, "what")
    made = clause(draft, subject, verb, draft.rng.draw(ASKED_TENSES), asked=True)
    bit, aux = draft.link(), made.aux[0][1]
    est_ce_que = [("que", bit), ("est-ce", bit | aux), ("que", aux)]
    return Phrase(
        [("what", bit), *made.aux, *subject.english, *made.rest],
        [*est_ce_que, *subject.french, *made.finite, *made.tail],
    )


COMMANDS = Pool(lexicon.named(
    "open close look read wash clean buy watch follow wait help prepare eat drink listen write "
    "choose hide push repair paint touch sell cut fill visit carry feed invite avoid count "
    "protect finish pull drive wear taste explore photograph thank"
))  # fmt: skip


def command(draft: Draft) -> Phrase:
    """Return *Open the window!*, *Don't touch the cake!* in the polite plural."""
    rng = draft.rng
    verb = rng.draw(COMMANDS)
    negated = rng.chance(0.35)
    obj = draw_object(draft, verb, negated)
    bit, do, negation = draft.link(), draft.link(), draft.link()
    draft.combine("you", verb.english, obj.head)
    english = [(verb.english, bit), *tokens(verb.particle, bit), *obj.english]
    french = [(verb.present[3], bit | do), *govern(verb, obj, bit)]  # the polite plural
    if negated:
        english = [("do", do), ("n't", negation), *english]
        french = [("ne", negation), french[0], ("pas", negation), *french[1:]]
    polite = word(draft, "please", "s' il vous plaît")
    comma = word(draft, ",", ",")
    made = Phrase(english, french)
    return concatenate(made, comma, polite) if rng.chance(0.25) else made
