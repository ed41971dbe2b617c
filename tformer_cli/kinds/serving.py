"""Computing a verb for a service: lines of many requests in the same batches.

A line is prepared as units, a unit's result depends on nothing but the unit and the settings, and a
line is finished from the results of its units. So units of any lines may be computed together, and
the result of a unit may be cached for equal ones. See `Kind.serving`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from tformer_cli.errors import DataError, UsageError
from tformer_cli.search.keywords import DecodingOverrides
from tformer_cli.search.opening import generation_config, overridden
from tformer_cli.search.translator import PartOfLine
from tformer_cli.settings import type_problem
from tformer_cli.wording import did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import LineConstraints
    from tformer_cli.search.engine import Sentence
    from tformer_cli.search.hypothesis import CrossHead
    from tformer_cli.search.translator import Translation
    from tformer_cli.text.tokenizer import Tokenizer

BYTES_PER_TOKEN = 4
"""About as many of a text, where it is not worth while to count."""
SEARCH = get_type_hints(DecodingOverrides)
"""Settings of a search by name, with their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part that is computed in one go, with any others of the same settings."""

    tokens: int
    """Its size, about: what it costs."""
    key: Hashable
    """Decides its result, together with the model and the settings."""
    content: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLine:
    """A line as it is computed."""

    units: tuple[Unit, ...]
    """None of a blank line of some verbs, which needs no model."""
    content: Any


def size_of(text: str) -> int:
    """Guesses the tokens of a text, before they are made."""
    return 1 + len(text.encode(errors="replace")) // BYTES_PER_TOKEN


class Serving(ABC):
    """A verb of an opened model, with settings."""

    verb: str
    group: Hashable
    """The settings: units of one group may be in a batch."""
    tokenizer: Tokenizer | None = None
    """The side that names the tokens of its results, where these have any."""

    def having(self, settings: Mapping[str, Any]) -> Serving:
        """Returns the same verb with other settings than the model's own."""
        known = self._known_settings()
        for name in settings:
            if name not in known:
                guess = did_you_mean(suggestions(name, known)) or "omit it"
                raise UsageError(f"{name}: is not a setting of {self.verb}; {guess}")
            # The settings of a search are checked as a whole, later
            if name not in SEARCH and (problem := type_problem(settings[name], known[name])):
                raise UsageError(f"{name}: {problem}")
        return self._having(settings) if settings else self

    @abstractmethod
    def _known_settings(self) -> Mapping[str, Any]:
        """Lists the settings that a request may name."""

    @abstractmethod
    def _having(self, settings: Mapping[str, Any]) -> Serving: ...

    @abstractmethod
    def prepare(
        self,
        texts: Sequence[str],
        first_index: int,
        constraints: Sequence[LineConstraints] | None = None,
    ) -> list[ServedLine]:
        """Divides lines into units; the first line has this number in its request."""

    @abstractmethod
    def compute(self, units: Sequence[Unit]) -> list[Any]:
        """Computes each unit."""

    def stream_unit(self, unit: Unit, on_text: Callable[[str], None]) -> Any:  # noqa: ANN401, ARG002
        """Computes one unit; where a text is written token by token, it is shown meanwhile."""
        return self.compute([unit])[0]

    @abstractmethod
    def finish(self, line: ServedLine, results: Sequence[Any]) -> Any:  # noqa: ANN401 - of each verb
        """Combines the results of a line's units."""

    def warm_up(self) -> None:
        """Computes something, so that weights are packed before the first request."""
        self.compute([unit for line in self.prepare(["a"], 0) for unit in line.units])


class Doubter(Protocol):
    """Estimates how probably translations are wrong, as `inspect.doubt.Doubter` does."""

    def add_doubts(self, translations: Sequence[Translation], /) -> list[Translation]: ...


class Translating(Serving):
    """Translation; its units are sentences."""

    verb = "translate"
    heads: tuple[CrossHead, ...] = ()
    """Heads to record in searches whose setting `aligned` is true."""
    doubter: Doubter | None = None
    """Asked where the setting `doubt` is true; None: the model is not calibrated."""

    def __init__(self, opened: Opened) -> None:
        self._translator = opened.translator
        self.tokenizer = opened.directory.tokenizer
        self._is_doubted = False
        self._recorded_heads: tuple[CrossHead, ...] = ()
        self._seed: int | None = None
        self._languages: tuple[str | None, str | None] = (None, None)
        self.group = self._group()

    def _group(self) -> Hashable:
        # Not the seed, which is in the keys of sentences: all seeds share a batch. Nor the doubt,
        # which is computed once a line's sentences are found
        return (self._translator.config, self._languages, self._recorded_heads)

    def _known_settings(self) -> Mapping[str, Any]:
        languages = {"source_language": str, "target_language": str}
        return {**SEARCH, "seed": int, "aligned": bool, "doubt": bool, **languages}

    def _having(self, settings: Mapping[str, Any]) -> Translating:
        other = copy(self)
        search = dict(settings)
        other._seed = search.pop("seed", None)
        is_aligned, other._is_doubted = (search.pop(name, False) for name in ("aligned", "doubt"))
        if other._is_doubted and self.doubter is None:
            raise UsageError(
                "doubt: this model is not calibrated; run `tformer calibrate` on its directory "
                "and reload it, or omit it"
            )
        if is_aligned:
            other._recorded_heads = self.heads
        if other._recorded_heads:
            other._translator = other._translator.listening(other._recorded_heads)
        languages = search.pop("source_language", None), search.pop("target_language", None)
        if any(languages):
            other._translator = other._translator.with_languages(*languages)
            other._languages = languages
        if search:
            config = overridden(other._translator.config, **search)
            other._translator = other._translator.with_config(config)
        other.group = other._group()
        return other

    def prepare(
        self,
        texts: Sequence[str],
        first_index: int,
        constraints: Sequence[LineConstraints] | None = None,
    ) -> list[ServedLine]:
        prepared = self._translator.prepare(texts, first_index, constraints, self._seed)
        return [
            ServedLine(units=tuple(map(self._unit, line.sentences)), content=line)
            for line in prepared
        ]

    def _unit(self, sentence: Sentence) -> Unit:
        constraints = sentence.constraints
        key = (
            sentence.tokens,
            sentence.prefix,
            # Bytes of tokens are the tokenizer's, and would be a list
            None
            if constraints is None
            else (
                constraints.required,
                constraints.unwritten,
                constraints.banned,
                constraints.whole_prefix,
            ),
            sentence.key if self._translator.config.sampling else 0,
            # Any sentence of a line may hold its required phrases
            sentence.place if isinstance(sentence, PartOfLine) else None,
        )
        return Unit(tokens=len(sentence.tokens) + 1, key=key, content=sentence)

    def compute(self, units: Sequence[Unit]) -> list[Any]:
        return self._translator.search([unit.content for unit in units])

    def finish(self, line: ServedLine, results: Sequence[Any]) -> Any:  # noqa: ANN401
        translation = self._translator.finish(line.content, results)
        return (
            self.doubter.add_doubts([translation])[0]
            if self._is_doubted and self.doubter
            else translation
        )


class UndividedLines(Serving):
    """A verb whose units are lines."""

    @abstractmethod
    def _unit(self, text: str, number: int) -> Unit: ...

    def prepare(
        self,
        texts: Sequence[str],
        first_index: int,
        constraints: Sequence[LineConstraints] | None = None,
    ) -> list[ServedLine]:
        if constraints:
            raise UsageError(f"constraints: {self.verb} has none; omit them")
        return [
            ServedLine(units=(self._unit(text, number),), content=number)
            for number, text in enumerate(texts, first_index)
        ]

    def finish(self, line: ServedLine, results: Sequence[Any]) -> Any:  # noqa: ANN401
        return replace(results[0], index=line.content)


class Generating(UndividedLines):
    """Texts of a language model."""

    verb = "generate"

    def __init__(self, opened: Opened) -> None:
        self._generator = opened.generator
        self.group = self._generator.config

    def _known_settings(self) -> Mapping[str, Any]:
        return {**SEARCH, "seed": int, "stops": tuple}

    def _having(self, settings: Mapping[str, Any]) -> Generating:
        other = copy(self)
        search = dict(settings)
        seed, stops = search.pop("seed", None), tuple(search.pop("stops", None) or ())
        config = generation_config(self._generator.config, **search)
        other._generator = self._generator.with_config(config, stops, seed)
        other.group = (other._generator.config, stops, seed)
        return other

    def _unit(self, text: str, number: int) -> Unit:
        config = self._generator.config
        return Unit(
            # Writing costs more than reading
            tokens=size_of(text) + config.max_length,
            key=(text, number if config.sampling else 0),
            content=(text, number),
        )

    def compute(self, units: Sequence[Unit]) -> list[Any]:
        texts, numbers = zip(*(unit.content for unit in units), strict=True)
        return self._generator.generate(texts, numbers)

    def stream_unit(self, unit: Unit, on_text: Callable[[str], None]) -> Any:  # noqa: ANN401
        if not self._generator.writes_straight:
            return super().stream_unit(unit, on_text)
        text, number = unit.content
        return self._generator.generate([text], [number], on_text)[0]

    def warm_up(self) -> None:
        shortest = copy(self)
        # One token: a whole text takes a second or more
        config = replace(self._generator.config, max_length=1, min_length=0)
        shortest._generator = self._generator.with_config(config, (), None)
        super(Generating, shortest).warm_up()


class WholeLines(UndividedLines):
    """Verbs of encoders; lines are cut off where the model takes no more."""

    def __init__(
        self,
        opened: Opened,
        verb: Verb,
        compute: Callable[..., list[Any]],
        settings: Mapping[str, Any],
    ) -> None:
        """Takes the function that computes results, and the types of its settings."""
        self.verb = verb
        self._reads_names = opened.config.reads_images
        self._longest = opened.config.longest_source
        self._compute, self._settings = compute, settings
        self._chosen: Mapping[str, Any] = {}
        self.group = verb

    def _known_settings(self) -> Mapping[str, Any]:
        return self._settings

    def _having(self, settings: Mapping[str, Any]) -> WholeLines:
        other = copy(self)
        other._chosen = settings
        other.group = (self.verb, *sorted(settings.items()))
        return other

    def prepare(
        self,
        texts: Sequence[str],
        first_index: int,
        constraints: Sequence[LineConstraints] | None = None,
    ) -> list[ServedLine]:
        lines = super().prepare(texts, first_index, constraints)
        # Other names are files of this machine
        if self._reads_names and not all(text.startswith("data:") for text in texts):
            raise DataError(f"{self.verb}: reads pictures; send data:image/png;base64,…")
        return lines

    def _unit(self, text: str, number: int) -> Unit:  # noqa: ARG002 - as that of prompts
        return Unit(tokens=min(size_of(text), self._longest), key=text, content=text)

    def warm_up(self) -> None:
        if not self._reads_names:
            super().warm_up()

    def compute(self, units: Sequence[Unit]) -> list[Any]:
        return self._compute([unit.content for unit in units], **self._chosen)
