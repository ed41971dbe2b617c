"""Clauses: verb groups in both languages, with negation, tense, clitics and agreement.

The English simple past of an event is a *passé composé*, that of a state an *imparfait*; the
progressive is a simple tense in French. English ``aux`` and ``rest`` and French ``finite`` and
``tail`` are kept apart so that questions can put the subject between them.
"""

from dataclasses import dataclass

from tformer_cli.plugins.built_in.grammar.determiners import with_preposition
from tformer_cli.plugins.built_in.grammar.phrases import Draft, Phrase, tokens, word
from tformer_cli.plugins.built_in.grammar.surface import Tokens
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Adjective, Expression, Verb
from tformer_cli.plugins.built_in.grammar.words.morphology_french import agree

BE_PRESENT = ("am", "is", "are", "are", "are")
BE_PAST = ("was", "was", "were", "were", "were")
DO = ("do", "does", "do", "do", "do")
HAS = ("have", "has", "have", "have", "have")
REFLEXIVE = ("me", "se", "nous", "vous", "se")
# *ca|n't*, *wo|n't*: the negation is a token with its own links
SHORTENED = {"can": "ca", "will": "wo"}
CONTRACTION_SHARE = 0.8
CONTRACTED = {"am": "'m", "is": "'s", "are": "'re", "will": "'ll"}
"""Auxiliaries, shortened after a pronoun: *I'm*, *she's*."""
CONTRACTED_SHARE = 0.25
COMPOUND_TENSES = frozenset({"past", "perfect"})


@dataclass(slots=True)
class Clause:
    """A clause in pieces, so that questions can put the subject between them."""

    subject: Phrase
    aux: Tokens
    rest: Tokens
    finite: Tokens
    tail: Tokens
    contracts: bool = False
    """True if a statement of it says *I'm*, not *I am*."""

    def extend(self, addition: Phrase) -> "Clause":
        self.rest = self.rest + addition.english
        self.tail = self.tail + addition.french
        return self

    def statement(self) -> Phrase:
        aux = self.aux
        # Only before more words: nobody says *yes, I'm*
        if self.contracts and self.subject.pronoun and aux and (len(aux) > 1 or self.rest):
            aux = [(CONTRACTED.get(aux[0][0], aux[0][0]), aux[0][1]), *aux[1:]]
        return Phrase(
            self.subject.english + aux + self.rest,
            self.subject.french + self.finite + self.tail,
        )


@dataclass(slots=True)
class Links:
    """The masks of a verb group: main verb, auxiliary, negation."""

    verb: int
    aux: int
    negation: int


def clause(
    draft: Draft,
    subject: Phrase,
    verb: Verb,
    tense: str,
    *,
    obj: Phrase | None = None,
    negated: bool = False,
    adverb: Expression | None = None,
    gap: Phrase | None = None,
    is_question: bool = False,
    infinitive: Phrase | None = None,
) -> Clause:
    links = Links(draft.link(), draft.link(), draft.link())
    if tense == "present" and verb.past == verb.english and subject.person != 1:
        tense = "progressive"  # "they read" would leave the tense open
    aux, rest = english_group(draft, verb, tense, subject.person, negated, is_question, links)
    never = adverb is not None and adverb.french == ("jamais",)
    clitic = obj if obj is not None and obj.clitic else None
    preceding = clitic or gap
    finite, tail = french_group(
        verb, tense, subject, links, bool(aux), negated or never, clitic, preceding
    )
    if adverb is not None:
        rest, tail = _insert_adverb(draft, adverb, verb, never, links, rest, tail)
    elif negated:
        tail = [("pas", links.negation), *tail]
    if infinitive is not None:
        rest, tail = rest + infinitive.english, tail + infinitive.french
    if obj is not None:
        rest = rest + obj.english
        if not obj.clitic:
            tail = tail + govern(verb, obj, links.verb)
    # *isn't*, not *'sn't*
    has_contraction = any(english == "n't" for english, _ in aux)
    contracts = subject.pronoun and draft.rng.chance(CONTRACTED_SHARE) and not has_contraction
    return Clause(subject, aux, rest, finite, tail, contracts)


def govern(verb: Verb, obj: Phrase, link: int) -> Tokens:
    if not verb.french_preposition:
        return obj.french
    return with_preposition([(verb.french_preposition, link)], obj.french)


def _insert_adverb(
    draft: Draft,
    adverb: Expression,
    verb: Verb,
    never: bool,
    links: Links,
    rest: Tokens,
    tail: Tokens,
) -> tuple[Tokens, Tokens]:
    bit = links.negation if never else draft.link()
    source, target = (adverb.english[0], bit), (adverb.french[0], bit)
    if verb is lexicon.BE:  # *is never*, but *never eats*
        return [*rest, source], [target, *tail]
    return [source, *rest], [target, *tail]


def english_group(
    draft: Draft,
    verb: Verb,
    tense: str,
    person: int,
    negated: bool,
    is_question: bool,
    links: Links,
) -> tuple[Tokens, Tokens]:
    """Return the auxiliary with its negation, and the words from the main verb on."""
    main = links.verb
    particle = tokens(verb.particle, main)
    if verb is lexicon.BE and tense in ("present", "past"):
        auxiliary, main_word = (BE_PRESENT if tense == "present" else BE_PAST)[person], ""
    elif verb is lexicon.CAN or verb is lexicon.MUST:
        auxiliary, main_word = ("could" if tense == "past" else verb.english), ""
    elif tense == "future":
        auxiliary, main_word = "will", verb.english
    elif tense == "perfect":
        auxiliary, main_word = HAS[person], verb.past_participle
    elif tense in ("progressive", "past_progressive"):
        auxiliary, main_word = (BE_PRESENT if tense == "progressive" else BE_PAST)[person], verb.ing
    elif negated or is_question:
        auxiliary, main_word = ("did" if tense == "past" else DO[person]), verb.english
    else:
        form = verb.past if tense == "past" else verb.third if person == 1 else verb.english
        return [], [(form, main), *particle]
    rest = [(main_word, main), *particle] if main_word else []
    mask = links.aux if main_word else main  # *is* and *can* are the verb itself
    if not negated:
        return [(auxiliary, mask)], rest
    return _negate(draft, auxiliary, mask, links.negation), rest


def _negate(draft: Draft, auxiliary: str, mask: int, negation: int) -> Tokens:
    # English has neither *amn't* nor, in two words, *can not*
    if auxiliary == "am" or (auxiliary != "can" and not draft.rng.chance(CONTRACTION_SHARE)):
        return [(auxiliary, mask), ("not", negation)]
    return [(SHORTENED.get(auxiliary, auxiliary), mask), ("n't", negation)]


def french_group(
    verb: Verb,
    tense: str,
    subject: Phrase,
    links: Links,
    has_aux: bool,
    negated: bool,
    clitic: Phrase | None,
    preceding: Phrase | None,
) -> tuple[Tokens, Tokens]:
    """Return ``ne``, clitics and the finite verb; then the participle, if the tense has one."""
    before: Tokens = [("ne", links.negation)] if negated else []
    if verb.reflexive:
        before = [*before, (REFLEXIVE[subject.person], links.verb)]
    if clitic is not None:
        before = [*before, (clitic.clitic, clitic.links)]
    # A past state is an *imparfait*, a past event a *passé composé*
    if tense not in COMPOUND_TENSES or (verb.stative and tense == "past"):
        return [*before, (simple_form(verb, tense, subject.person), links.verb | links.aux)], []
    auxiliary = lexicon.BE if verb.etre else lexicon.HAVE
    mask = links.aux if has_aux else links.verb
    # With *avoir* a participle agrees with a direct object before it, and with nothing else
    agreeing = subject if verb.etre else preceding
    participle = verb.participle
    if agreeing is not None and not (preceding and verb.french_preposition):
        participle = agree(participle, agreeing.feminine, agreeing.plural)
    return [*before, (auxiliary.present[subject.person], mask)], [(participle, links.verb)]


def simple_form(verb: Verb, tense: str, person: int) -> str:
    if tense in ("past", "past_progressive"):
        return verb.imperfect[person]
    return (verb.future if tense == "future" else verb.present)[person]


def infinitive_phrase(
    draft: Draft, control: Verb, subject: Phrase, verb: Verb, obj: Phrase | None = None
) -> Phrase:
    """Return *to cross the street* / *(de) traverser la rue* for a control verb."""
    bit = draft.link()
    bare = control is lexicon.CAN or control is lexicon.MUST  # modals take no *to*
    english: Tokens = [] if bare else [("to", bit)]
    english += tokens(f"{verb.english} {verb.particle}", bit)
    french = tokens(control.french_preposition, bit)
    if verb.reflexive:
        french.append((REFLEXIVE[subject.person], bit))
    if obj is not None and obj.clitic:
        french.append((obj.clitic, obj.links))
    french.append((verb.infinitive, bit))
    if obj is not None:
        english += obj.english
        french += [] if obj.clitic else govern(verb, obj, bit)
    return Phrase(english, french)


def question(base: Clause, before: Phrase | None = None) -> Phrase:
    """Return a question: inversion with a pronoun, *est-ce que* with a noun or *je*."""
    subject = base.subject
    english = (before.english if before else []) + base.aux + subject.english + base.rest
    french = list(before.french) if before else []
    # *mange-je* is hardly said: like nouns, *je* takes *est-ce que*
    if subject.pronoun and subject.person != 0:
        pronoun = subject.french[0][0]
        last = base.finite[-1][0]
        # *A-t-elle mangé ?*: a t parts two vowels, unless the verb ends in its sound
        linked = "-t-" if pronoun[0] in "ie" and last[-1] not in "td" else "-"
        french += [*base.finite, (linked + pronoun, subject.french[0][1]), *base.tail]
        return Phrase(english, french)
    opening = tokens("est-ce que", base.aux[0][1])
    return Phrase(english, french + opening + subject.french + base.finite + base.tail)


def predicate(draft: Draft, adjective: Adjective, subject: Phrase) -> Phrase:
    return word(draft, adjective.english, adjective.form(subject.feminine, subject.plural))


def be(draft: Draft, subject: Phrase, tense: str) -> Clause:
    """Return a clause of *be* / *être*, to which a predicate is added."""
    return clause(draft, subject, lexicon.BE, tense)
