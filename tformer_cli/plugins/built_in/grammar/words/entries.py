"""Lexicon entries with all their forms, and the parsers of their tables."""

from dataclasses import dataclass

from tformer_cli.plugins.built_in.grammar.words import morphology_english as english
from tformer_cli.plugins.built_in.grammar.words import morphology_french as french


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun: its forms in both languages, the French gender and its classes of meaning."""

    english: str
    english_plural: str
    french: str
    french_plural: str
    feminine: bool
    tags: frozenset[str]

    @property
    def countable(self) -> bool:
        return "mass" not in self.tags and "single" not in self.tags


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective: English, the five French forms, its place and whether it is a reason."""

    english: str
    masculine: str
    feminine: str
    masculine_plural: str
    feminine_plural: str
    before_vowel: str
    precedes: bool
    sign: str

    def form(self, feminine: bool, plural: bool, following: str = "") -> str:
        """Return the form that agrees, *bel* and the like before a vowel."""
        if feminine:
            return self.feminine_plural if plural else self.feminine
        if plural:
            return self.masculine_plural
        if self.before_vowel and following and french.starts_with_vowel(following):
            return self.before_vowel
        return self.masculine


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb with its forms, its French auxiliary and the nouns that go with it."""

    english: str
    third: str
    past: str
    past_participle: str
    ing: str
    particle: str
    infinitive: str
    present: tuple[str, ...]
    imperfect: tuple[str, ...]
    future: tuple[str, ...]
    participle: str
    french_preposition: str
    etre: bool
    reflexive: bool
    stative: bool
    subjects: str
    objects: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A fixed expression: its words in both languages and the links between them."""

    english: tuple[str, ...]
    french: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


def parse_noun(entry: str, group_tags: str) -> Noun:
    """Parse ``mouse/mice souris f +tag``."""
    english_form, french_form, gender, *marks = entry.split()
    singular, _, plural = english_form.partition("/")
    french_singular, _, french_plural = french_form.partition("/")
    tags = set(group_tags.split()) | {mark[1:] for mark in marks if mark[0] == "+"}
    if "-s" in marks:
        tags.add("single")
    return Noun(
        singular,
        plural or english.plural(singular),
        french_singular,
        french_plural or french.noun_plural(french_singular),
        gender == "f",
        frozenset(tags),
    )


def parse_adjective(entry: str, precedes: bool = False) -> Adjective:
    """Parse ``beautiful beau/belle/bel`` with an optional sign."""
    english_form, french_form, *sign = entry.split()
    masculine, feminine, vowel, invariable = [*french_form.split("/"), "", "", ""][:4]
    feminine = feminine or french.adjective_feminine(masculine)
    plurals = [french.adjective_plural(masculine, False), french.adjective_plural(feminine, True)]
    if invariable:
        plurals = [masculine, feminine]
    return Adjective(
        english_form,
        masculine,
        feminine,
        plurals[0],
        plurals[1],
        vowel,
        precedes,
        sign[0] if sign else "",
    )


def parse_verb(entry: str) -> Verb:
    """Parse ``look for|chercher|human|thing``; ``*`` marks *être*, ``~`` a state."""
    english_form, french_form, subjects, objects = [*entry.split("|"), "", ""][:4]
    base, _, particle = english_form.partition(" ")
    # The marks stand at the end of the whole French form, behind a preposition
    marks = french_form[len(french_form.rstrip("*~")) :]
    words = french_form.rstrip("*~").split()
    # "se laver", "penser à": the infinitive is the first word that is not a pronoun
    reflexive = words[0] in ("se", "s'")
    infinitive = words[1] if reflexive else words[0]
    tail = words[2:] if reflexive else words[1:]
    present, imperfect, future, participle = french.conjugate(infinitive)
    past, past_participle = english.past_forms(base)
    return Verb(
        english=base,
        third=english.third_person(base),
        past=past,
        past_participle=past_participle,
        ing=english.present_participle(base),
        particle=particle,
        infinitive=infinitive,
        present=present,
        imperfect=imperfect,
        future=future,
        participle=participle,
        french_preposition=" ".join(tail),
        etre="*" in marks or reflexive,  # all reflexive verbs form their perfect with être
        reflexive=reflexive,
        stative="~" in marks,
        subjects=subjects,
        objects=objects,
    )


def parse_expression(entry: str) -> Expression:
    """Parse ``last week|la semaine dernière|0-2 1-0 1-1``; without links every word has all."""
    english_form, french_form, links = [*entry.split("|"), ""][:3]
    source, target = tuple(english_form.split()), tuple(french_form.split())
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    full = [(i, j) for i in range(len(source)) for j in range(len(target))]
    return Expression(source, target, tuple((p[0], p[1]) for p in pairs) or tuple(full))
