"""Noun phrases and pronouns in both languages."""

from dataclasses import dataclass

from tformer_cli.plugins.built_in.grammar.choices import FLATTENING, Choices, Pool
from tformer_cli.plugins.built_in.grammar.determiners import (
    ANYWHERE,
    FRENCH_QUANTITIES,
    can_be_owned,
    draw_determiner,
    french_determiner,
    partitive,
    with_preposition,
)
from tformer_cli.plugins.built_in.grammar.surface import Tokens
from tformer_cli.plugins.built_in.grammar.words import lexicon
from tformer_cli.plugins.built_in.grammar.words.entries import Adjective, Expression, Noun
from tformer_cli.plugins.built_in.grammar.words.morphology_english import indefinite_article


class Draft:
    """A sentence being made: its generator, its next link and its combinations of content words."""

    __slots__ = ("combinations", "next_link", "rng")

    def __init__(self, rng: Choices) -> None:
        self.rng = rng
        self.next_link = 1
        self.combinations: list[str] = []

    def link(self) -> int:
        """Return a fresh bit: tokens that carry it are aligned."""
        bit = self.next_link
        self.next_link = bit << 1
        return bit

    def combine(self, *lemmas: str) -> None:
        """Record the main content words of a clause, by which corpora are split."""
        self.combinations.append(" ".join(lemmas))


@dataclass(slots=True)
class Phrase:
    """Matching token lists with the features that verbs, adjectives and pronouns agree with."""

    english: Tokens
    french: Tokens
    person: int = 1
    feminine: bool = False
    plural: bool = False
    head: str = ""
    noun: Noun | None = None
    pronoun: bool = False
    clitic: str = ""
    links: int = 0

    @property
    def human(self) -> bool:
        return self.noun is None or "human" in self.noun.tags  # names have no noun


PRONOUNS = {
    "I": ("je", 0, False, False),
    "he": ("il", 1, False, False),
    "she": ("elle", 1, True, False),
    "we": ("nous", 2, False, True),
    "you": ("vous", 3, False, False),
    "they": ("ils", 4, False, True),
}
PRONOUN_POOL = Pool(list(PRONOUNS), [30.0, 25, 25, 18, 18, 14])


def tokens(words: str, link: int) -> Tokens:
    return [(word, link) for word in words.split()]


def word(draft: Draft, english: str, french: str) -> Phrase:
    """Return English words, all linked to all of the French ones."""
    bit = draft.link()
    return Phrase(tokens(english, bit), tokens(french, bit))


def draw_noun(draft: Draft, tags: str, flattening: float = FLATTENING) -> Noun:
    return draft.rng.draw(lexicon.nouns(tags, flattening))


def expression(draft: Draft, fixed: Expression) -> Phrase:
    bits = [draft.link() for _ in fixed.english]
    masks = [0] * len(fixed.french)
    for i, j in fixed.links:
        masks[j] |= bits[i]
    return Phrase(
        list(zip(fixed.english, bits, strict=True)), list(zip(fixed.french, masks, strict=True))
    )


def _adjectives(draft: Draft, noun: Noun, share: float) -> list[Adjective]:
    """Draw no, one or (rarely) two adjectives, one before and one after the French noun."""
    rng = draft.rng
    pool = lexicon.describing(noun)
    if pool is None or not rng.chance(share):
        return []
    first = rng.draw(pool)
    if rng.chance(0.15):
        second = rng.draw(pool)
        # Two on one side would raise the question of their order in French
        if second.precedes != first.precedes:
            return [first, second] if first.precedes else [second, first]
    return [first]


def _nucleus(
    draft: Draft, noun: Noun, plural: bool, share: float
) -> tuple[Tokens, Tokens, bool, int]:
    """Return adjectives and noun in both orders, and whether an adjective comes first."""
    bit = draft.link()
    english: Tokens = [(noun.english_plural if plural else noun.english, bit)]
    head = noun.french_plural if plural else noun.french
    french: Tokens = [(head, bit)]
    first = False
    # From the noun outward: *beau* is *bel* by the word that follows it
    for adjective in reversed(_adjectives(draft, noun, share)):
        mask = draft.link()
        english.insert(0, (adjective.english, mask))
        form = adjective.form(noun.feminine, plural, french[0][0] if adjective.precedes else "")
        if adjective.precedes:
            french.insert(0, (form, mask))
            first = True
        else:
            french.append((form, mask))
    return english, french, first, bit


def noun_phrase(
    draft: Draft,
    noun: Noun,
    *,
    determiner: str = "",
    plural: bool | None = None,
    negated: bool = False,
    share: float = 0.25,
) -> Phrase:
    rng = draft.rng
    if plural is None:
        plural = rng.chance(0.26)
    plural = plural and noun.countable
    kind = determiner or draw_determiner(rng, noun, plural)
    # Nobody has a river: *my* and *the boy's* suit some nouns only
    if determiner and determiner not in ANYWHERE and not can_be_owned(noun):
        kind = "the"
    english, french, first, bit = _nucleus(draft, noun, plural, share)
    phrase = Phrase(
        english, french, 4 if plural else 1, noun.feminine, plural, noun.english, noun, links=bit
    )
    if kind == "owner":
        _add_owner(draft, phrase)
    else:
        _add_determiner(draft, phrase, kind, negated, first)
    return phrase


def _add_determiner(draft: Draft, phrase: Phrase, kind: str, negated: bool, first: bool) -> None:
    bit = draft.link()
    following = phrase.french[0][0]
    feminine, plural = phrase.feminine, phrase.plural
    # Under negation a quantity is *any* and *de*, and so is *un* below
    if negated and kind in ("some", "many", "several", "a lot of", "number"):
        kind = "any"
    if kind == "number":
        source, target = draft.rng.draw(lexicon.NUMBERS)
    elif kind in FRENCH_QUANTITIES:
        source, target = kind, FRENCH_QUANTITIES[kind]
    elif kind == "some":
        source, target = kind, partitive(feminine, plural, following, first)
    else:
        source = indefinite_article(phrase.english[0][0]) if kind == "a" else kind
        indefinite = negated and kind == "a"
        target = "de" if indefinite else french_determiner(kind, feminine, plural, following)
    phrase.english[:0] = tokens(source, bit)
    phrase.french[:0] = tokens(target, bit)


def _add_owner(draft: Draft, phrase: Phrase) -> None:
    """Put *the boy's* before the English noun and *le … du garçon* around the French one."""
    if draft.rng.chance(0.5):
        owner = name(draft)
    else:
        human = draw_noun(draft, "human")
        owner = noun_phrase(draft, human, determiner="the", plural=False, share=0.0)
    bit = draft.link()
    phrase.english[:0] = [*owner.english, ("'s", bit)]
    article = french_determiner("the", phrase.feminine, phrase.plural, phrase.french[0][0])
    tail = with_preposition([("de", bit)], owner.french)
    phrase.french[:] = [(article, bit), *phrase.french, *tail]


def name(draft: Draft) -> Phrase:
    source, target, gender = draft.rng.draw(lexicon.NAMES)
    bit = draft.link()
    return Phrase([(source, bit)], [(target, bit)], 1, gender == "f", False, source)


def pronoun(draft: Draft, word: str = "") -> Phrase:
    """Return a subject pronoun without an antecedent: *he*, *we*, *you*."""
    word = word or draft.rng.draw(PRONOUN_POOL)
    french, person, feminine, plural = PRONOUNS[word]
    bit = draft.link()
    return Phrase([(word, bit)], [(french, bit)], person, feminine, plural, word, pronoun=True)


def standing_for(draft: Draft, referent: Phrase) -> Phrase:
    """Return the pronoun for ``referent``: *it* is *il* or *elle* by the French gender."""
    if referent.pronoun:
        return pronoun(draft, referent.english[0][0])
    bit = draft.link()
    feminine, plural = referent.feminine, referent.plural
    word = "they" if plural else "it" if not referent.human else "she" if feminine else "he"
    french = ("elle" if feminine else "il") + ("s" if plural else "")
    person = 4 if plural else 1
    return Phrase([(word, bit)], [(french, bit)], person, feminine, plural, word, pronoun=True)


def object_pronoun(draft: Draft, referent: Phrase) -> Phrase:
    """Return *it*, *them*, *him* or *her* with the French clitic *le*, *la*, *les*."""
    bit = draft.link()
    feminine, plural = referent.feminine, referent.plural
    word = "them" if plural else "it" if not referent.human else "her" if feminine else "him"
    clitic = "les" if plural else "la" if feminine else "le"
    # No French words here: the clitic stands before the verb, where `french_group` puts it
    return Phrase([(word, bit)], [], 1, feminine, plural, referent.head, pronoun=True,
                  clitic=clitic, links=bit)  # fmt: skip


def someone(draft: Draft, tags: str, *, pronouns: float = 0.22, names: float = 0.15) -> Phrase:
    """Return a subject from the classes ``tags``: often a noun, for humans also name or pronoun."""
    rng = draft.rng
    if "human" in tags:
        roll = rng.roll()
        if roll < pronouns:
            return pronoun(draft)
        if roll < pronouns + names:
            return name(draft)
    return noun_phrase(draft, draw_noun(draft, tags))


def concatenate(*parts: Phrase) -> Phrase:
    joined = Phrase([], [])
    for part in parts:
        joined.english += part.english
        joined.french += part.french
    return joined
