"""Served languages: their codes, as clients write them, their names, and language detection."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.requests import Refused
from tformer_cli.text.languages import main_code
from tformer_cli.wording import installing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tformer_cli.plugins.serve.models import ModelInfo, Service

LONG_CODES = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant"}
"""Codes in answers that replace short ones."""
_NAMES = (
    "af=Afrikaans am=Amharic ar=Arabic az=Azerbaijani be=Belarusian bg=Bulgarian bn=Bengali "
    "bs=Bosnian ca=Catalan cs=Czech cy=Welsh da=Danish de=German el=Greek en=English eo=Esperanto "
    "es=Spanish et=Estonian eu=Basque fa=Persian fi=Finnish fr=French ga=Irish gl=Galician "
    "gu=Gujarati he=Hebrew hi=Hindi hr=Croatian hu=Hungarian hy=Armenian id=Indonesian "
    "is=Icelandic it=Italian ja=Japanese ka=Georgian kk=Kazakh km=Khmer kn=Kannada ko=Korean "
    "ky=Kyrgyz lo=Lao lt=Lithuanian lv=Latvian mk=Macedonian ml=Malayalam mn=Mongolian mr=Marathi "
    "ms=Malay mt=Maltese my=Burmese nb=Norwegian ne=Nepali nl=Dutch no=Norwegian pa=Punjabi "
    "pl=Polish pt=Portuguese pt-BR=Portuguese_(Brazil) ro=Romanian ru=Russian si=Sinhala sk=Slovak "
    "sl=Slovenian sq=Albanian sr=Serbian sv=Swedish sw=Swahili ta=Tamil te=Telugu th=Thai "
    "tl=Tagalog tr=Turkish uk=Ukrainian ur=Urdu uz=Uzbek vi=Vietnamese zh-Hans=Chinese "
    "zh-Hant=Chinese_(traditional)"
)
NAMES: dict[str, str] = dict(pair.split("=") for pair in _NAMES.split())
"""English names of the languages most often translated."""
LOOKED_AT = 2000
"""Characters of a text used to guess its language."""
MOST_GUESSES = 3
UNDETECTED = "en"


def long_code(code: str) -> str:
    """Returns the form of a code that answers use."""
    return LONG_CODES.get(code.lower(), code)


def name_of(code: str) -> str:
    return NAMES.get(code, NAMES.get(main_code(code), code)).replace("_", " ")


@dataclass(frozen=True)
class Way:
    """Models that translate from one language to another, in order; none if they are the same."""

    models: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


class Languages:
    """The languages of a service and the models between them, fixed while it runs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @cached_property
    def _infos(self) -> Mapping[str, ModelInfo]:
        return {info.name: info for info in self._service.info()}

    @cached_property
    def _codes(self) -> dict[str, str]:
        """The models' codes by the codes of answers, in the order of the models."""
        codes: dict[str, str] = {}
        for info in self._infos.values():
            for code in _codes_of(info):
                codes.setdefault(long_code(code), code)
        return codes

    @property
    def codes(self) -> list[str]:
        return list(self._codes)

    def find(self, text: str) -> str | None:
        """Finds a language by its code, in any case, with or without region; None if unknown."""
        wanted = long_code(text.strip()).lower()
        by_lower = {code.lower(): code for code in self._codes}
        if wanted in by_lower:
            return by_lower[wanted]
        # en matches en-US and vice versa, but one script never matches another
        is_plain = "-" not in text
        alike = [
            code
            for code in self._codes
            if main_code(code) == main_code(wanted) and (is_plain or "-" not in code)
        ]
        return alike[0] if len(alike) == 1 else None

    def way(self, source: str, target: str) -> Way | None:
        """Returns the models from one language to another; None if there are none."""
        if source == target:
            return Way()
        codes = self._codes[source], self._codes[target]
        try:
            models = self._service.route(*codes)
        except UsageError:
            return None
        # Only a multilingual model must be told its two languages
        is_many = bool(self._infos[models[0]].languages)
        names = ("source_language", "target_language") if is_many and len(models) == 1 else ()
        return Way(models, dict(zip(names, codes, strict=False)))

    def targets(self, source: str) -> list[str]:
        """Returns the possible target languages of a source, including itself."""
        return [code for code in self._codes if self.way(source, code) is not None]

    @cached_property
    def listed(self) -> list[dict[str, object]]:
        """All languages with their names and targets, in LibreTranslate's format."""
        # Including pure target languages: clients look up both codes in this list
        return [
            {"code": code, "name": name_of(code), "targets": self.targets(code)}
            for code in self._codes
        ]

    def checked_way(self, source: str, target: str) -> Way:
        """Returns the models between two languages; refuses a pair without any."""
        way = self.way(source, target)
        if way is None:
            raise Refused(
                400,
                f"{name_of(target)} ({target}) is not available as a target language from "
                f"{name_of(source)} ({source})",
            )
        return way


def _codes_of(info: ModelInfo) -> Iterable[str]:
    pair = (info.source_language, info.target_language)
    return filter(None, (*pair, *info.languages)) if "translate" in info.verbs else ()


def code_in(info: ModelInfo, code: str) -> str:
    """Returns the code that a multilingual model uses for a language."""
    codes = [own for own in info.languages if long_code(own) == code] or [
        own for own in info.languages if main_code(own) == main_code(code)
    ]
    if not codes:
        raise Refused(400, f"{info.name} does not know {name_of(code)}", param="model")
    return codes[0]


class Detector:
    """Guesses the language of a text (naive Bayes on bytes, Lui & Baldwin 2011)."""

    def __init__(self) -> None:
        self._rankers: dict[tuple[str, ...], _Ranker] = {}

    def guesses(self, text: str, codes: Sequence[str]) -> list[tuple[str, float]]:
        """Returns up to three languages with percentages, the likeliest first."""
        looked_at = text[:LOOKED_AT]
        if not codes or not any(letter.isalpha() for letter in looked_at):
            return []
        key = tuple(codes)
        if key not in self._rankers:
            # Only a few sets occur, those of the models' targets
            self._rankers[key] = _Ranker(codes)
        return self._rankers[key].rank(looked_at)[:MOST_GUESSES]


class _Ranker:
    """The classifier, restricted to some languages."""

    def __init__(self, codes: Sequence[str]) -> None:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise Refused(501, f"no language detector installed; {installing('serve')}") from None
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        labels = set(self._identifier.labels)
        by_label: dict[str, str] = {}
        for code in codes:
            by_label.setdefault(_label(code, labels), code)
        by_label.pop("", None)
        self._by_label = by_label
        if by_label:
            self._identifier.set_languages(sorted(by_label))

    def rank(self, text: str) -> list[tuple[str, float]]:
        if not self._by_label:
            return []
        ranking = self._identifier.rank(text)
        return [(self._by_label[label], round(100.0 * share, 1)) for label, share in ranking]


def _label(code: str, labels: set[str]) -> str:
    main = main_code(code)
    return next((info for info in (main, {"nb": "no"}.get(main, "")) if info in labels), "")
