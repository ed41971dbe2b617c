"""Determiners and their contractions: articles, possessives, quantities, *du* and *aux*."""

from tformer_cli.plugins.built_in.grammar.choices import Choices, Pool
from tformer_cli.plugins.built_in.grammar.surface import Tokens
from tformer_cli.plugins.built_in.grammar.words.entries import Noun
from tformer_cli.plugins.built_in.grammar.words.morphology_french import starts_with_vowel

POSSESSIVES = {
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "your": ("votre", "votre", "vos"),
    "their": ("leur", "leur", "leurs"),
}
ANYWHERE = frozenset({"the", "a", "this", "these", "some", "many", "several", "number"})
"""Determiners that any noun may have."""
POSSESSIVE_POOL = Pool(list(POSSESSIVES))
SINGULAR_DETERMINERS = Pool(["the", "a", "possessive", "this", "owner"], [55.0, 22, 11, 6, 6])
PLURAL_DETERMINERS = Pool(
    ["the", "some", "possessive", "these", "number", "many", "several", "owner"],
    [42.0, 14, 9, 6, 16, 5, 4, 4],
)
MASS_DETERMINERS = Pool(["the", "some", "possessive", "this", "a lot of"], [45.0, 35, 8, 5, 7])
FRENCH_QUANTITIES = {
    "many": "beaucoup de", "a lot of": "beaucoup de", "several": "plusieurs", "any": "de",
}  # fmt: skip


def french_determiner(kind: str, feminine: bool, plural: bool, following: str) -> str:
    """Return the article, demonstrative or possessive that agrees: *la*, *cet*, *mon* (amie)."""
    vowel = starts_with_vowel(following)
    if kind == "the":
        return "les" if plural else "la" if feminine else "le"
    if kind == "a":
        return "une" if feminine else "un"
    if kind in ("this", "these"):
        return "ces" if plural else "cette" if feminine else "cet" if vowel else "ce"
    forms = POSSESSIVES[kind]
    # *mon amie*: no two vowels may meet
    return forms[2] if plural else forms[1] if feminine and not vowel else forms[0]


def partitive(feminine: bool, plural: bool, following: str, adjective_first: bool) -> str:
    """Return the words of *some*: *des*, *de* (grands), *du*, *de la*, *de l'*."""
    if plural:
        return "de" if adjective_first else "des"
    if starts_with_vowel(following) or feminine:
        return "de la" if feminine else "de le"  # elision makes *de l'* of both
    return "du"


def with_preposition(preposition: Tokens, noun_phrase: Tokens) -> Tokens:
    """Return preposition and phrase with *du*, *des*, *au*, *aux* contracted."""
    (word, mask), (article, article_mask) = preposition[-1], noun_phrase[0]
    # *l'* is not contracted
    masculine = article == "le" and not starts_with_vowel(noun_phrase[1][0])
    if word == "de" and article in ("des", "du"):  # *de* swallows *des* and *du*
        return [*preposition, *noun_phrase[1:]]
    if word in ("de", "à") and (masculine or article == "les"):
        both = {"dele": "du", "deles": "des", "àle": "au", "àles": "aux"}[word + article]
        return [*preposition[:-1], (both, mask | article_mask), *noun_phrase[1:]]
    return [*preposition, *noun_phrase]


def can_be_owned(noun: Noun) -> bool:
    """Return whether *my* or *the boy's* makes sense: not for rivers and kings."""
    return "owned" in noun.tags or noun.tags.isdisjoint({"human", "way", "climbable", "sky"})


def draw_determiner(rng: Choices, noun: Noun, plural: bool) -> str:
    """Return a determiner that ``noun`` can have: an English word or a kind such as ``number``."""
    if "single" in noun.tags:
        return "the"
    if "mass" in noun.tags:
        kind = rng.draw(MASS_DETERMINERS)
    else:
        kind = rng.draw(PLURAL_DETERMINERS if plural else SINGULAR_DETERMINERS)
    if kind in ("possessive", "owner") and not can_be_owned(noun):
        return "the"
    return rng.draw(POSSESSIVE_POOL) if kind == "possessive" else kind
