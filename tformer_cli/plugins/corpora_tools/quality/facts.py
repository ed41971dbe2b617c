"""Facts about a corpus as a whole that its pairs are judged by, estimated from a sample."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.quality.settings import CheckSettings
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.languages import (
    FUNCTION_WORDS,
    main_code,
    script_of,
    scripts_of,
    telling_words,
    words_of,
    words_of_another,
)
from tformer_cli.wording import installing, is_blank

SAMPLE_PAIRS = 10_000
"""Pairs that facts are estimated from."""
DETECTED = 1000
"""Pairs among them whose language is detected."""
# Of a side's lines that a word must be in to be common there.
WORD_SHARE = 0.05
FEWEST_PAIRS = 30
"""Filled pairs below which nothing is estimated."""
# Of a side's letters that a script must have to be expected there.
SCRIPT_SHARE = 0.2
# Variance of a length for each character that is assumed at least: generated text has none.
LEAST_SPREAD = 1.0
MEDIAN_OF_SQUARE = 0.4549
"""Median of the square of a normal variable of variance 1."""


@dataclass(frozen=True, kw_only=True)
class CorpusKind:
    """Content of the two sides of an example."""

    name: str
    noun: str
    """One example, in messages."""
    sides: tuple[str, str]
    """Name of each side; empty: there is none."""
    texts: tuple[int, ...]
    side: str
    """One of them, in messages."""

    def texts_of(self, pair: SentencePair) -> list[tuple[str, str]]:
        """The texts of an example, each with its name."""
        return [(self.sides[place], pair[place]) for place in self.texts]

    def sides_by_name(self, pair: SentencePair) -> dict[str, str]:
        return {name: side for name, side in zip(self.sides, pair, strict=True) if name}


PAIRS = CorpusKind(
    name="pairs", noun="pair", sides=("source", "target"), texts=(0, 1), side="a side"
)
LABELED = CorpusKind(
    name="labeled", noun="example", sides=("text", "label"), texts=(0,), side="a text or label"
)
TEXTS = CorpusKind(name="texts", noun="text", sides=("", "text"), texts=(1,), side="a text")
# Probability below which a language is not sure: a short sentence fits many languages.
CONFIDENCE = 0.7
FEWEST_TEXTS, LEAST_SHARE = 5, 0.5
"""Texts of a side whose language is sure, and the share of them that makes it the side's."""


class Detector:
    """Detects the language of texts by a naive Bayes classifier of bytes (Lui & Baldwin 2011)."""

    def __init__(self) -> None:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise UsageError(
                f"--detect-languages: the package is not installed; {installing('langid')}"
            ) from None
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._known = frozenset(map(main_code, self._identifier.labels))
        self.language = lru_cache(maxsize=8)(self._language)  # several checks ask for each text

    def check_known(self, language: str) -> None:
        """Checks that the detector knows a language."""
        if main_code(language) not in self._known:
            raise UsageError(
                f'--detect-languages: "{language}" is none of the {len(self._known)} languages '
                "that can be detected; omit the option"
            )

    def of_most(self, texts: Iterable[str]) -> str:
        """Returns the language of most texts; empty if there is none, or there are few texts."""
        counts = Counter(filter(None, map(self._language, texts)))
        code, count = next(iter(counts.most_common(1)), ("", 0))
        return code if count >= max(FEWEST_TEXTS, LEAST_SHARE * counts.total()) else ""

    def _language(self, text: str) -> str:
        """Returns the code of a text's language; empty if that is not sure."""
        code, probability = self._identifier.classify(text)
        return main_code(code) if probability >= CONFIDENCE else ""


@dataclass(frozen=True, kw_only=True)
class CorpusFacts:
    """Facts about a corpus that are known before its pairs are judged."""

    languages: tuple[str, str] = ("", "")
    """Codes of source and target language; empty: unknown."""
    scripts: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """Scripts that each side may have; empty: any."""
    ratio: float = 1.0
    """Characters of a target for each of its source, the median."""
    spread: float = 0.0
    """Variance of a target's length for each character; 0: unknown."""
    common_words: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """Words that many lines of each side have, but none of the other language's."""
    settings: CheckSettings = field(default_factory=CheckSettings)
    kind: CorpusKind = PAIRS
    detector: Detector | None = None
    """Detects languages; None: scripts and common words decide."""


class Sample:
    """A fixed number of the pairs of a stream, each with the same chance (Vitter 1985, R)."""

    def __init__(self, size: int = SAMPLE_PAIRS) -> None:
        self.pairs: list[SentencePair] = []
        self._size, self._n_seen = size, 0
        # fixed: the same corpus gets the same report
        self._random = random.Random(1)

    def add(self, pair: SentencePair) -> None:
        self._n_seen += 1
        if len(self.pairs) < self._size:
            self.pairs.append(pair)
        elif (place := int(self._random.random() * self._n_seen)) < self._size:
            self.pairs[place] = pair


def estimate_facts(
    pairs: Sequence[SentencePair],
    languages: tuple[str, str],
    kind: CorpusKind = PAIRS,
    detector: Detector | None = None,
    settings: CheckSettings | None = None,
) -> CorpusFacts:
    filled = [pair for pair in pairs if not any(is_blank(text) for _, text in kind.texts_of(pair))]
    if detector is not None:
        names = list(languages)
        for side in kind.texts:
            names[side] = names[side] or detector.of_most(pair[side] for pair in filled[:DETECTED])
        languages = names[0], names[1]
    # of languages that are not known a side may have the scripts that it mostly has
    scripts = [
        scripts_of(language) or _common_scripts(pair[side] for pair in filled)
        for side, language in enumerate(languages)
    ]
    ratio, spread = _lengths(filled) if kind is PAIRS else (1.0, 0.0)
    codes = main_code(languages[0]), main_code(languages[1])
    common = [_common_words([pair[side] for pair in filled], codes[side]) for side in (0, 1)]
    # Where many pairs are swapped or copied, words of one side are common on the other
    others = [telling_words(codes[1 - side], codes[side]) for side in (0, 1)]
    return CorpusFacts(
        languages=codes,
        scripts=(scripts[0], scripts[1]),
        ratio=ratio,
        spread=spread,
        common_words=(common[0] - others[0], common[1] - others[1]),
        settings=settings or CheckSettings(),
        kind=kind,
        detector=detector,
    )


def deviation(source: int, target: int, ratio: float, spread: float) -> float:
    """Z-score of a target's length given its source's (Gale and Church 1993, section 3.2)."""
    # with the mean of both lengths in the denominator, so that swapped sides only change the sign
    expected = ratio * source
    return float((target - expected) / (spread * (expected + target) / 2) ** 0.5)


def _lengths(filled: Sequence[SentencePair]) -> tuple[float, float]:
    if len(filled) < FEWEST_PAIRS:
        return 1.0, 0.0
    lengths = [(len(source), len(target)) for source, target in filled]
    # medians, for many pairs of a noisy corpus may be wrong
    ratio = median(target / source for source, target in lengths)
    squares = (deviation(*pair, ratio, 1.0) ** 2 for pair in lengths)
    return ratio, max(median(squares) / MEDIAN_OF_SQUARE, LEAST_SPREAD)


def _common_scripts(lines: Iterable[str]) -> frozenset[str]:
    """Scripts that have a good share of the letters; none if there are few letters."""
    counts = Counter(script_of(letter) for line in lines for letter in line if letter.isalpha())
    if counts.total() < FEWEST_PAIRS:
        return frozenset()
    return frozenset(n for n, count in counts.items() if count >= SCRIPT_SHARE * counts.total())


def _common_words(lines: Sequence[str], language: str) -> frozenset[str]:
    """Words of many lines, counted where function words do not tell another language."""
    if len(lines) < FEWEST_PAIRS:
        return frozenset()
    counts: Counter[str] = Counter()
    for line in lines:
        words = words_of(line)
        # many lines in another language would make its words the corpus's own
        _, n_others, n_own = words_of_another(words, language)
        if n_own > n_others or language not in FUNCTION_WORDS:
            counts.update(set(words))
    return frozenset(word for word, n in counts.items() if n >= WORD_SHARE * len(lines))
