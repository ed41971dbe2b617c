"""A model that is loaded once and called many times, from any number of threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from threading import RLock
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.data.given_lines import given_lines
from tformer_cli.decoding.translator import BUFFER_LINES
from tformer_cli.errors import UsageError
from tformer_cli.wording import did_you_mean, suggestions
from tformer_cli.workflows.opening.settings import TranslatorOptions
from tformer_cli.workflows.opening.translator import Opened, open_translator, overridden
from tformer_cli.workflows.score import PAIRS_AT_ONCE, ScoreCounts, aligned_pairs, scored_pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.decoding.config import DecodingOverrides
    from tformer_cli.decoding.translator import Translation, Translator
    from tformer_cli.inspection.capture.heads import CaptureMode
    from tformer_cli.inspection.record import HeadsRecord
    from tformer_cli.inspection.weighting.weighting import WeightingName
    from tformer_cli.workflows.inspection.heads import HeadInspector
    from tformer_cli.workflows.score import ScoredPair


def load_model(model: Path | str, **options: Unpack[TranslatorOptions]) -> LoadedModel:
    """Opens a model; see `tformer_cli.load`."""
    known = TranslatorOptions.__annotations__
    for name in options:
        if name not in known:
            guess = did_you_mean(suggestions(name, known)) or "see `tformer guide python`"
            raise UsageError(f"{name}: is not a setting of a loaded model; {guess}")
    return LoadedModel(open_translator(model, **options), options)


class LoadedModel:
    """A model that translates, scores and shows its heads.

    Methods check their settings at once and return iterators, which compute when they are asked for
    a result and read no more than a buffer ahead. Several threads may use the same model: it
    computes for one of them at a time, a buffer or a sentence, and each gets what it would get
    alone. One iterator belongs to one thread.
    """

    def __init__(self, opened: Opened, options: TranslatorOptions | None = None) -> None:
        """Takes an opened model.

        Args:
            opened: from `open_translator`; the functions of `tformer_cli.workflows` take it, too.
            options: that it was opened with.
        """
        self.opened = opened
        """The model as the workflows know it."""
        self._options = options or {}
        is_shown = opened.precision == "float32" and opened.engine in ("tformer", "torch")
        self._for_inspection: Opened | None = opened if is_shown else None
        # One at a time: engines have buffers of their own, and taps listen to whoever computes
        self._lock = RLock()

    def __repr__(self) -> str:
        opened = self.opened
        return f"<{opened.directory.path}: {opened.precision} on {opened.place}>"

    def translate(
        self,
        lines: Iterable[str],
        *,
        buffer_lines: int = BUFFER_LINES,
        **search: Unpack[DecodingOverrides],
    ) -> Iterator[Translation]:
        """Translates lines as they come, in order, one translation a line.

        Args:
            lines: source sentences.
            buffer_lines: lines that are batched together; 1 answers line by line.
            **search: settings of this call's search, such as `beam_size` and `n_best`.

        Raises:
            TypeError: if the lines are one string, or hold something else.
            ValueError: if `buffer_lines` is not positive.
            UsageError: if a setting is impossible.
        """
        if buffer_lines < 1:
            raise ValueError(f"buffer_lines: must be at least 1, but is {buffer_lines}")
        return self._translations(
            self._translator(self.opened, search), given_lines(lines), buffer_lines
        )

    def _translations(
        self, translator: Translator, lines: Iterator[str], buffer_lines: int
    ) -> Iterator[Translation]:
        first = 0
        while buffer := list(islice(lines, buffer_lines)):
            with self._lock:
                found = translator.translate(buffer, first)
            yield from found
            first += len(buffer)

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> Iterator[ScoredPair]:
        """Scores translations that are given, by forced decoding.

        Args:
            sources: source sentences.
            targets: a translation of each.

        Raises:
            TypeError: if a side is one string, or holds something else.
            DataError: while it is read, if one side has more lines.
        """
        return self._scores(
            aligned_pairs(given_lines(sources, "sources"), given_lines(targets, "targets"))
        )

    def _scores(self, pairs: Iterator[tuple[str, str]]) -> Iterator[ScoredPair]:
        counts = ScoreCounts()
        while buffer := list(islice(pairs, PAIRS_AT_ONCE)):
            with self._lock:
                found = scored_pairs(self.opened, buffer, counts)
            yield from found

    def heads(
        self,
        lines: Iterable[str],
        *,
        targets: Iterable[str] | None = None,
        heads: Sequence[str] = (),
        mode: CaptureMode = "forced",
        rank: int = 1,
        weights: WeightingName | None = None,
        **search: Unpack[DecodingOverrides],
    ) -> Iterator[HeadsRecord]:
        """Captures the attention heads on sentences and their translations.

        Maps are computed in float32; a model of another precision is opened in it once.

        Args:
            lines: source sentences.
            targets: a target for each line, looked at instead of the model's translation.
            heads: which heads, such as "cross.last"; none means all.
            mode: "forced" or "live".
            rank: which of the translations, 1 the best.
            weights: kind of the maps' numbers; None: attention weights.
            **search: settings of this call's search.

        Returns:
            A record a line, as of `inspect_heads`, which has the details. A notebook shows it as
            the page of the heads.

        Raises:
            UsageError: if `heads` select nothing or a setting is impossible.
            DataError: while it is read, if a line is too long or the sides differ in length.
        """
        from tformer_cli.workflows.inspection.heads import HeadInspector

        settings: dict[str, Any] = {"n_best": rank, **search}
        with self._lock:
            opened = self._opened_for_inspection()
            translator = self._translator(opened, settings)
            inspector = HeadInspector(
                replace(opened, translator=translator), heads, mode=mode, rank=rank, weights=weights
            )
        pairs = inspector.pairs(given_lines(lines), targets)
        return self._records(inspector, pairs)

    def _records(
        self, inspector: HeadInspector, pairs: Iterator[tuple[str, str | None]]
    ) -> Iterator[HeadsRecord]:
        for index, (line, target) in enumerate(pairs):
            with self._lock:
                record = inspector.inspect_line(index, line, target)
            yield record

    def _opened_for_inspection(self) -> Opened:
        if self._for_inspection is None:
            options: dict[str, Any] = {**self._options, "precision": "float32"}
            options["engine"] = "tformer"
            self._for_inspection = open_translator(self.opened.directory.path, **options)
        return self._for_inspection

    def _translator(self, opened: Opened, search: DecodingOverrides | dict[str, Any]) -> Translator:
        """Makes the translator of one call, which has settings of its own."""
        if not search:
            return opened.translator
        config = overridden(opened.translator.config, self._options.get("tell"), **search)
        return opened.translator.with_config(config)
