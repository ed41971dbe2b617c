"""A few sentences in, all of their inspection out, for one page."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.config_file import WEIGHTS, task_kind
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.files.regular_file import hash_file
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import HeadInspector
from tformer_cli.inspect.jobs.reader import InspectionOptions, open_for_inspection
from tformer_cli.inspect.jobs.views import captured, subject_of
from tformer_cli.inspect.page.report_page import Report, SentenceReport
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import ModelView, ReportOptions, SentenceView, Subject
from tformer_cli.inspect.views import all_views
from tformer_cli.inspect.views.heads import VIEW as HEADS
from tformer_cli.inspect.views.positions import N_POSITIONS
from tformer_cli.inspect.views.step import one_head
from tformer_cli.inspect.walkthrough.tokens import find_token
from tformer_cli.kinds.opening.translator import Opened

TASKS = HEADS.tasks
"""Tasks whose models have a report: those with maps of heads."""
FEWEST_POSITIONS = 32
"""Position vectors that are shown even if the sentences are shorter."""


def inspect_report(
    model: Path | str | ModelDirectory | Opened,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    options: ReportOptions | None = None,
    observe: Callable[[int], None] = lambda _: None,
    **opening: Unpack[InspectionOptions],
) -> Report:
    options = options or ReportOptions()
    opened = (
        model
        if isinstance(model, Opened)
        else open_for_inspection(model, hypothesis=options.rank, tasks=TASKS, **opening)
    )
    inspector = HeadInspector(opened, **captured(options))
    subject = subject_of(opened.directory)
    options = replace(options, steps=tuple(_parse_step(subject, one) for one in options.step))
    return _Reporter(opened, subject, options).report(inspector.inspect(lines, targets), observe)


@dataclass(frozen=True)
class _Reporter:
    """Inspects sentences with an opened model; see `inspect_report`."""

    _opened: Opened
    _subject: Subject
    _options: ReportOptions

    def report(self, records: Iterable[HeadsRecord], observe: Callable[[int], None]) -> Report:
        sentences = []
        for record in records:
            if record.heads:
                sentences.append(self._inspect(record))
            elif record.maps is not None:
                raise UsageError(
                    f"--heads: no head of line {record.index + 1} meets the conditions; "
                    "select others or omit it"
                )
            observe(record.index + 1)
        if not sentences:
            raise DataError("the input: has no sentence to show; give one that is not blank")
        for head, token in self._options.steps:
            walks = [walk for sentence in sentences for walk in sentence.views.get("step", ())]
            if not any(walk.head == head for walk in walks):
                find_token(token, sentences[0].heads.row_labels(head.kind), "--step")
        options = replace(self._options, n_positions=self._n_positions(sentences))
        return Report(
            model_hash=hash_file(self._opened.directory.path / WEIGHTS),
            views={
                name: found
                for name, view in all_views().items()
                if isinstance(view, ModelView)
                and (found := view.report(self._subject, options)) is not None
            },
            sentences=tuple(sentences),
        )

    def _inspect(self, record: HeadsRecord) -> SentenceReport:
        residual = record.captured.residual
        if not residual <= self._options.tolerance:
            raise TformerError(
                f"line {record.index + 1}: residual {residual:.2g} exceeds --verify "
                f"{self._options.tolerance:.2g}; the maps do not reproduce the model's output so "
                "exactly"
            )
        task = task_kind(self._opened.directory.config)
        return SentenceReport(
            heads=record,
            views={
                name: found
                for name, view in all_views().items()
                if isinstance(view, SentenceView)
                and task in view.tasks
                and (found := view.report(self._subject, record, self._options)) is not None
            },
        )

    def _n_positions(self, sentences: Sequence[SentenceReport]) -> int:
        """As many positions as the longest sentence has, within what can be shown."""
        longest = max(
            max(len(sentence.heads.source_pieces), len(sentence.heads.target_pieces))
            for sentence in sentences
        )
        return min(
            max(longest, FEWEST_POSITIONS), N_POSITIONS, self._subject.model.config.n_positions
        )


def _parse_step(subject: Subject, text: str) -> tuple[HeadId, str]:
    name, colon, token = text.partition(":")
    if not colon or not token:
        raise UsageError(f'--step: "{text}" is not HEAD:TOKEN; write cross.0.1:word')
    return one_head(subject, name, "--step"), token
