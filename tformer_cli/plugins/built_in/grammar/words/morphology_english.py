"""English word forms: plurals, third person, participles, comparison, a or an."""

from tformer_cli.plugins.built_in.grammar.words.tables import TABLES, entries

VOWELS = frozenset("aeiou")
AN_WORDS = frozenset({"hour", "honest", "heir"})  # the sound decides
A_PREFIXES = ("uni", "use", "euro", "one")  # these begin with the sound of *you* or *one*

IRREGULAR_VERBS = {
    verb: (past, participle)
    for verb, past, participle in map(str.split, entries(TABLES["irregular"]["english"]))
}
# Listed, for a rule would need the stress: *forgetting*, but *visiting*
DOUBLED = frozenset({"stop", "run", "swim", "sit", "cut", "get", "win", "forget", "plan", "drop"})
IRREGULAR_COMPARATIVES = {"good": "better", "bad": "worse"}
SHORT_VOWEL = frozenset({"big", "wet", "hot", "sad", "red", "thin", "fat"})
LONG_COMPARISON = frozenset({"tired", "scared", "bored", "careful", "fragile", "polite", "honest"})


def plural(noun: str) -> str:
    """Return the regular plural: *dog*, *dogs*; *box*, *boxes*; *city*, *cities*."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def third_person(verb: str) -> str:
    """Return the third person singular of the present: *goes*, *watches*, *carries*."""
    if verb == "have":
        return "has"
    return verb + "es" if verb.endswith("o") else plural(verb)


def past_forms(verb: str) -> tuple[str, str]:
    if verb in IRREGULAR_VERBS:
        return IRREGULAR_VERBS[verb]
    if verb in DOUBLED:
        regular = verb + verb[-1] + "ed"
    elif verb.endswith("e"):
        regular = verb + "d"
    elif verb.endswith("y") and verb[-2] not in VOWELS:
        regular = verb[:-1] + "ied"
    else:
        regular = verb + "ed"
    return regular, regular


def present_participle(verb: str) -> str:
    """Return the *-ing* form: *making*, *running*, *playing*."""
    if verb in DOUBLED:
        return verb + verb[-1] + "ing"
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


def comparative(adjective: str) -> str:
    """Return the comparative: *wider*, *more curious*, *better*."""
    if adjective in IRREGULAR_COMPARATIVES:
        return IRREGULAR_COMPARATIVES[adjective]
    if adjective.endswith("y") and syllables(adjective) == 2:
        return adjective[:-1] + "ier"
    if syllables(adjective) > 1 or adjective in LONG_COMPARISON:
        return "more " + adjective
    if adjective.endswith("e"):
        return adjective + "r"
    if adjective in SHORT_VOWEL:
        return adjective + adjective[-1] + "er"
    return adjective + "er"


def syllables(word: str) -> int:
    """Count vowel groups, without a final silent *e*: enough to choose *-er* or *more*."""
    stem = word.removesuffix("e")
    groups, inside = 0, False
    for letter in stem:
        vowel = letter in "aeiouy"
        groups += vowel and not inside
        inside = vowel
    return max(groups, 1)


def indefinite_article(following: str) -> str:
    if following in AN_WORDS:
        return "an"
    if following.startswith(A_PREFIXES):
        return "a"
    return "an" if following[0].lower() in VOWELS else "a"
