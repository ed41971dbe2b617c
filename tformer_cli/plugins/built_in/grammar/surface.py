"""From tokens to sentences: elision, alignment links, capital letters, ordinary spacing.

A token is a word with a bit mask; an English and a French word are aligned if their masks meet.
"""

from dataclasses import dataclass

from tformer_cli.plugins.built_in.grammar.words.morphology_french import ELIDED, starts_with_vowel

Token = tuple[str, int]
Tokens = list[Token]

ENGLISH_GLUED = frozenset({"n't", "'s", "'m", "'re", "'ll", ".", ",", "?", "!"})
FRENCH_GLUED = frozenset({".", ","})
HYPHENATED = "-"


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """An English sentence, its French translation and the links between their words."""

    source: str
    """The English sentence as ordinary text."""
    target: str
    """The French sentence as ordinary text."""
    source_words: tuple[str, ...]
    """The English words with punctuation and ``n't`` split off."""
    target_words: tuple[str, ...]
    """The French words with punctuation and clitics split off."""
    links: tuple[tuple[int, int], ...]
    """Sorted (source index, target index) pairs, 0-based, over the words."""

    def pharaoh(self) -> str:
        """Return the links in Pharaoh format, such as ``0-0 1-1 2-3``."""
        return " ".join(f"{source}-{target}" for source, target in self.links)


def elide(tokens: Tokens) -> list[str]:
    """Return the words, each shortened where the next begins with a vowel: *l'*, *n'*, *qu'*."""
    words = []
    last = len(tokens) - 1
    for index, (word, _) in enumerate(tokens):
        if index < last and word in ELIDED and starts_with_vowel(tokens[index + 1][0]):
            words.append(ELIDED[word])
        # *s'il*, but *si elle*
        elif word == "si" and index < last and tokens[index + 1][0] in ("il", "ils"):
            words.append("s'")
        else:
            words.append(word)
    return words


def align(source: Tokens, target: Tokens) -> tuple[tuple[int, int], ...]:
    return tuple(
        [
            (i, j)
            for i, (_, mask) in enumerate(source)
            if mask  # 0: fixed expressions leave words out
            for j, (_, other) in enumerate(target)
            if mask & other
        ]
    )


def capitalize(words: list[str]) -> list[str]:
    first = words[0]
    return [first[0].upper() + first[1:], *words[1:]]


def detokenize_english(words: tuple[str, ...] | list[str]) -> str:
    text = words[0]
    for word in words[1:]:
        text += word if word in ENGLISH_GLUED else " " + word
    return text


def detokenize_french(words: tuple[str, ...] | list[str]) -> str:
    """Return ordinary French text for tokenized words, a space before ``?`` and ``!``."""
    text = words[0]
    open_clitic = text[-1] == "'"
    for word in words[1:]:
        glued = open_clitic or word in FRENCH_GLUED or word[0] == HYPHENATED
        text += word if glued else " " + word
        open_clitic = word[-1] == "'"
    return text


def finish(source: Tokens, target: Tokens, mark: str) -> AlignedPair:
    """Return the sentence pair of two token lists, closed by the punctuation ``mark``."""
    final = 1 << 62  # a bit that no draft reaches
    source = [*source, (mark, final)]
    target = [*target, (mark, final)]
    source_words = capitalize([word for word, _ in source])
    target_words = capitalize(elide(target))
    return AlignedPair(
        detokenize_english(source_words),
        detokenize_french(target_words),
        tuple(source_words),
        tuple(target_words),
        align(source, target),
    )
