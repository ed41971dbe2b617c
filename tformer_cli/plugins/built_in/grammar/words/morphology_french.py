"""French word forms: verbs, adjectives, nouns, and elision before a vowel.

Persons are numbered 0 *je*, 1 *il/elle*, 2 *nous*, 3 *vous*, 4 *ils/elles*; the grammar says *vous*
to everybody, so *tu* has no forms here.
"""

from functools import cache

from tformer_cli.plugins.built_in.grammar.words.tables import TABLES, entries

VOWELS = frozenset("aeiouàâäéèêëîïôöùûüœæAEIOUÀÂÉÈÊÎÔÛŒ")
ASPIRATED = frozenset({
    "hibou", "hiboux", "hérisson", "hérissons", "héros", "hamster", "hamsters", "hache", "haches",
    "haut", "haute", "hauts", "hautes", "huit",
})  # fmt: skip
"""Words whose h blocks elision, as in *le hibou*."""
UNELIDED = frozenset({"onze"})  # *le onze*

ELIDED = {word: word[:-1] + "'" for word in ("le", "la", "de", "ne", "que", "je", "se", "me", "ce")}

DOUBLING = frozenset({"jeter", "appeler", "rappeler"})
IMPERFECT_ENDINGS = ("ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")
Forms = tuple[str, ...]

IRREGULAR = {
    infinitive: (tuple(present.split()), future, participle)
    for entry in entries(TABLES["irregular"]["french"])
    for infinitive, present, future, participle in [entry.split("|")]
}


def starts_with_vowel(word: str) -> bool:
    """Return whether the word before ``word`` elides: *animal*, *homme*, *y*; not *hibou*."""
    first = word[0]
    if first in VOWELS:
        return word not in UNELIDED
    if first in "hH":
        return word not in ASPIRATED
    return word in {"y", "yeux"}


def _strong_stem(infinitive: str) -> str:
    """Return the stem of a verb in *-er* before a silent ending: *achèt*, *nettoi*, *préfèr*."""
    stem = infinitive[:-2]
    if stem.endswith("y"):
        return stem[:-1] + "i"
    if infinitive in DOUBLING:
        return stem + stem[-1]
    if stem[-2] in "eé" and stem[-1] not in VOWELS:
        return stem[:-2] + "è" + stem[-1]
    return stem


def _first_group(infinitive: str) -> tuple[Forms, str, str]:
    stem = infinitive[:-2]
    strong = _strong_stem(infinitive)
    # *mangeons*, *plaçons*: the soft sound stays
    before_o = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
    present = (strong + "e", strong + "e", before_o + "ons", stem + "ez", strong + "ent")
    future = stem + "er" if "é" in stem[-2:] else strong + "er"  # *préférerai* keeps its é
    return present, future, stem + "é"


def _regular(infinitive: str) -> tuple[Forms, str, str]:
    if infinitive.endswith("er"):
        return _first_group(infinitive)
    if infinitive.endswith("ir"):
        stem = infinitive[:-1]
        endings = ("s", "t", "ssons", "ssez", "ssent")
        return tuple(stem + ending for ending in endings), infinitive, stem
    stem = infinitive[:-2]
    return tuple(stem + e for e in ("s", "", "ons", "ez", "ent")), infinitive[:-1], stem + "u"


def _imperfect(infinitive: str, present: Forms) -> Forms:
    # Made from *nous*: *finissons*, *finissais*; only *être* is not
    stem = "ét" if infinitive == "être" else present[2][:-3]
    soft = stem[:-1] + "c" if stem.endswith("ç") else stem  # before i the sound is soft
    soft = soft[:-1] if infinitive.endswith("ger") else soft
    return tuple((soft if end[0] == "i" else stem) + end for end in IMPERFECT_ENDINGS)


@cache
def conjugate(infinitive: str) -> tuple[Forms, Forms, Forms, str]:
    """Return the present, imperfect and future (five persons each) and the past participle."""
    present, future, participle = IRREGULAR.get(infinitive) or _regular(infinitive)
    return (
        present,
        _imperfect(infinitive, present),
        tuple(future + ending for ending in FUTURE_ENDINGS),
        participle,
    )


@cache
def agree(participle: str, feminine: bool, plural: bool) -> str:
    """Return a participle with its marks of gender and number: *mangées*, *mise*, *mis*, *due*."""
    if participle == "dû" and (feminine or plural):  # the accent only sets *dû* apart from *du*
        participle = "du"
    form = participle + "e" if feminine else participle
    return form if not plural or form.endswith("s") else form + "s"


def noun_plural(noun: str) -> str:
    """Return the plural by rule: *chiens*, *souris*, *oiseaux*, *chevaux*, *jeux*."""
    if noun.endswith(("s", "x", "z")):
        return noun
    if noun.endswith(("eau", "eu")):
        return noun + "x"
    return noun[:-2] + "aux" if noun.endswith("al") else noun + "s"


FEMININE_ENDINGS = (
    ("e", "e"), ("eux", "euse"), ("oux", "ouse"), ("ien", "ienne"), ("er", "ère"), ("if", "ive"),
    ("el", "elle"), ("on", "onne"), ("et", "ète"), ("gu", "guë"), ("eil", "eille"),
)  # fmt: skip


def adjective_feminine(masculine: str) -> str:
    """Return the feminine by rule: *curieuse*, *jalouse*, *légère*, *inquiète*, *petite*."""
    for ending, feminine in FEMININE_ENDINGS:
        if masculine.endswith(ending):
            return masculine[: -len(ending)] + feminine
    return masculine + "e"


def adjective_plural(form: str, feminine: bool) -> str:
    """Return the plural of one gender's form: *grands*, *curieux*, *beaux*, *nationaux*."""
    if form.endswith(("s", "x")):
        return form
    if not feminine and form.endswith("eau"):
        return form + "x"
    if not feminine and form.endswith("al"):
        return form[:-2] + "aux"
    return form + "s"
