"""French word forms: verbs, adjectives, nouns, and elision before a vowel.

Persons are numbered 0 *je*, 1 *il/elle*, 2 *nous*, 3 *vous*, 4 *ils/elles*; the grammar says *vous*
to everybody, so *tu* has no forms here.
"""

from functools import cache

VOWELS = frozenset("aeiouàâäéèêëîïôöùûüœæAEIOUÀÂÉÈÊÎÔÛŒ")
ASPIRATED = frozenset({
    "hibou", "hiboux", "hérisson", "hérissons", "héros", "hamster", "hamsters", "hache", "haches",
    "haut", "haute", "hauts", "hautes", "huit",
})  # fmt: skip
"""Words whose h blocks elision, as in *le hibou*."""
UNELIDED = frozenset({"onze"})

ELIDED = {word: word[:-1] + "'" for word in ("le", "la", "de", "ne", "que", "je", "se", "me", "ce")}

IRREGULAR = """
avoir|ai a avons avez ont|aur|eu
être|suis est sommes êtes sont|ser|été
aller|vais va allons allez vont|ir|allé
faire|fais fait faisons faites font|fer|fait
pouvoir|peux peut pouvons pouvez peuvent|pourr|pu
devoir|dois doit devons devez doivent|devr|dû
vouloir|veux veut voulons voulez veulent|voudr|voulu
savoir|sais sait savons savez savent|saur|su
voir|vois voit voyons voyez voient|verr|vu
croire|crois croit croyons croyez croient|croir|cru
boire|bois boit buvons buvez boivent|boir|bu
dire|dis dit disons dites disent|dir|dit
lire|lis lit lisons lisez lisent|lir|lu
écrire|écris écrit écrivons écrivez écrivent|écrir|écrit
conduire|conduis conduit conduisons conduisez conduisent|conduir|conduit
construire|construis construit construisons construisez construisent|construir|construit
détruire|détruis détruit détruisons détruisez détruisent|détruir|détruit
prendre|prends prend prenons prenez prennent|prendr|pris
apprendre|apprends apprend apprenons apprenez apprennent|apprendr|appris
comprendre|comprends comprend comprenons comprenez comprennent|comprendr|compris
mettre|mets met mettons mettez mettent|mettr|mis
promettre|promets promet promettons promettez promettent|promettr|promis
venir|viens vient venons venez viennent|viendr|venu
revenir|reviens revient revenons revenez reviennent|reviendr|revenu
tenir|tiens tient tenons tenez tiennent|tiendr|tenu
ouvrir|ouvre ouvre ouvrons ouvrez ouvrent|ouvrir|ouvert
offrir|offre offre offrons offrez offrent|offrir|offert
découvrir|découvre découvre découvrons découvrez découvrent|découvrir|découvert
partir|pars part partons partez partent|partir|parti
sortir|sors sort sortons sortez sortent|sortir|sorti
dormir|dors dort dormons dormez dorment|dormir|dormi
courir|cours court courons courez courent|courr|couru
mourir|meurs meurt mourons mourez meurent|mourr|mort
naître|nais naît naissons naissez naissent|naîtr|né
connaître|connais connaît connaissons connaissez connaissent|connaîtr|connu
disparaître|disparais disparaît disparaissons disparaissez disparaissent|disparaîtr|disparu
peindre|peins peint peignons peignez peignent|peindr|peint
craindre|crains craint craignons craignez craignent|craindr|craint
suivre|suis suit suivons suivez suivent|suivr|suivi
poursuivre|poursuis poursuit poursuivons poursuivez poursuivent|poursuivr|poursuivi
rire|ris rit rions riez rient|rir|ri
sourire|souris sourit sourions souriez sourient|sourir|souri
envoyer|envoie envoie envoyons envoyez envoient|enverr|envoyé
asseoir|assieds assied asseyons asseyez asseyent|assiér|assis
enfuir|enfuis enfuit enfuyons enfuyez enfuient|enfuir|enfui
résoudre|résous résout résolvons résolvez résolvent|résoudr|résolu
sentir|sens sent sentons sentez sentent|sentir|senti
reconnaître|reconnais reconnaît reconnaissons reconnaissez reconnaissent|reconnaîtr|reconnu
recevoir|reçois reçoit recevons recevez reçoivent|recevr|reçu
"""
DOUBLING = frozenset({"jeter", "appeler", "rappeler"})
IMPERFECT_ENDINGS = ("ais", "ait", "ions", "iez", "aient")
FUTURE_ENDINGS = ("ai", "a", "ons", "ez", "ont")
Forms = tuple[str, ...]


def starts_with_vowel(word: str) -> bool:
    """Return whether the word before ``word`` elides: *animal*, *homme*, *y*; not *hibou*."""
    first = word[0]
    if first in VOWELS:
        return word not in UNELIDED
    if first in "hH":
        return word not in ASPIRATED
    return word in {"y", "yeux"}


def _parse_irregular() -> dict[str, tuple[Forms, str, str]]:
    table = {}
    for line in IRREGULAR.strip().splitlines():
        infinitive, present, future, participle = line.split("|")
        table[infinitive] = (tuple(present.split()), future, participle)
    return table


_IRREGULAR_TABLE = _parse_irregular()


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
    before_o = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
    present = (strong + "e", strong + "e", before_o + "ons", stem + "ez", strong + "ent")
    future = stem + "er" if "é" in stem[-2:] else strong + "er"
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
    stem = "ét" if infinitive == "être" else present[2][:-3]
    soft = stem[:-1] + "c" if stem.endswith("ç") else stem
    soft = soft[:-1] if infinitive.endswith("ger") else soft
    return tuple((soft if end[0] == "i" else stem) + end for end in IMPERFECT_ENDINGS)


@cache
def conjugate(infinitive: str) -> tuple[Forms, Forms, Forms, str]:
    """Return the present, imperfect and future (five persons each) and the past participle."""
    present, future, participle = _IRREGULAR_TABLE.get(infinitive) or _regular(infinitive)
    return (
        present,
        _imperfect(infinitive, present),
        tuple(future + ending for ending in FUTURE_ENDINGS),
        participle,
    )


@cache
def agree(participle: str, feminine: bool, plural: bool) -> str:
    """Return a participle with its marks of gender and number: *mangées*, *mise*, *mis*, *due*."""
    if participle == "dû" and (feminine or plural):
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
