"""A language detector: py3langid, a naive Bayes classifier of byte sequences (Lui & Baldwin 2011).

It is an extra. Without it, checks judge languages by scripts and common words.
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from tformer_cli.data.languages import main_code
from tformer_cli.errors import UsageError

CONFIDENCE = 0.7
"""Probability below which a language is not told: short sentences are those of many languages."""
FEWEST_TEXTS, LEAST_SHARE = 5, 0.5
"""Texts of a side whose language is told, and the share of them that makes it the side's."""


class Detector:
    """Tells the language of texts."""

    def __init__(self) -> None:
        """Loads the detector."""
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise UsageError(
                "--detect-languages: the package is not installed; pip install 'tformer[langid]'"
            ) from None
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._known = frozenset(map(main_code, self._identifier.labels))
        self.language = lru_cache(maxsize=8)(self._language)  # several checks ask for each text

    def check_known(self, language: str) -> None:
        """Checks that a language is one of those that are told apart."""
        if main_code(language) not in self._known:
            raise UsageError(
                f'--detect-languages: "{language}" is none of the {len(self._known)} languages '
                "that are told apart; omit the option"
            )

    def of_most(self, texts: Iterable[str]) -> str:
        """Returns the language of most texts; empty if there is none, or there are few texts."""
        found = Counter(filter(None, map(self._language, texts)))
        code, count = next(iter(found.most_common(1)), ("", 0))
        return code if count >= max(FEWEST_TEXTS, LEAST_SHARE * found.total()) else ""

    def _language(self, text: str) -> str:
        """Returns the code of a text's language; empty if that is not sure."""
        code, probability = self._identifier.classify(text)
        return main_code(code) if probability >= CONFIDENCE else ""
