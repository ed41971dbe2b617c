"""A few sentences in, all of their inspection out, for one page."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError, UsageError
from tformer_cli.files.regular_file import hash_file
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import HeadInspector, subject_of
from tformer_cli.inspect.jobs.reader import InspectionOptions, open_for_inspection
from tformer_cli.inspect.jobs.views import capture_options
from tformer_cli.inspect.pages import Report, SentenceReport
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import ModelView, ReportOptions, SentenceView, Subject
from tformer_cli.inspect.views import VIEWS
from tformer_cli.inspect.views.heads import VIEW as HEADS
from tformer_cli.inspect.views.heads import check_residual
from tformer_cli.kinds.stored_model import Opened

if TYPE_CHECKING:
    from tformer_cli.plugins.instruments.views.decision import DecisionRecord, Method

TASKS = HEADS.tasks  # Tasks whose models have a report: those with maps of heads
# Without random draws and integrated gradients, which are most of the time and least of the page
DECIDED_BY: "tuple[Method, ...]" = ("zero", "patch", "direct", "edges")
FEWEST_POSITIONS = 32  # Position vectors that are shown even if the sentences are shorter


def inspect_report(
    model: Path | str | ModelDirectory | Opened,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    options: ReportOptions | None = None,
    observe: Callable[[int], None] = lambda _: None,
    **opening: Unpack[InspectionOptions],
) -> Report:
    # Not at the top: a line of heads, which is read here too, does without other views
    from tformer_cli.plugins.instruments.views.decision import VIEW as DECISION
    from tformer_cli.plugins.instruments.views.positions import N_POSITIONS
    from tformer_cli.plugins.instruments.walkthrough.step import find_token

    options = options or ReportOptions()
    opened = open_for_inspection(model, hypothesis=options.rank, tasks=TASKS, **opening)
    inspector = HeadInspector(opened, **capture_options(options))
    subject = subject_of(opened.directory)
    options = replace(options, steps=tuple(_parse_step(subject, step) for step in options.step))
    sentences = []
    for record in inspector.inspect(lines, targets):
        if record.heads:
            sentences.append(_inspect(subject, record, options))
        elif record.maps is not None:
            raise UsageError(
                f"--heads: no head of line {record.index + 1} meets the conditions; "
                "select others or omit it"
            )
        observe(record.index + 1)
    if not sentences:
        raise DataError("the input: has no sentence to show; give one that is not blank")
    for head, token in options.steps:
        walks = [walk for sentence in sentences for walk in sentence.views.get("step", ())]
        if not any(walk.head == head for walk in walks):
            find_token(token, sentences[0].heads.row_labels(head.kind), "step")
    shown = [sentence.heads for sentence in sentences]
    # as many positions as the longest sentence has, within what can be shown
    longest = max(max(len(heads.source_pieces), len(heads.target_pieces)) for heads in shown)
    n_positions = min(max(longest, FEWEST_POSITIONS), N_POSITIONS, subject.model.config.n_positions)
    options = replace(options, n_positions=n_positions)
    of_model: dict[str, Any] = {
        name: data
        for name, view in VIEWS.items()
        if isinstance(view, ModelView) and (data := view.report(subject, options)) is not None
    }
    if options.ablation and subject.summary.task in DECISION.tasks:
        _decide(opened, sentences, of_model)
    return Report(
        model_hash=hash_file(opened.directory.path / WEIGHTS),
        views=of_model,
        sentences=tuple(sentences),
    )


def _decide(opened: Opened, sentences: list[SentenceReport], shared: dict[str, Any]) -> None:
    """Finds where two sentences part; else, and of other numbers, the decision of each."""
    from tformer_cli.plugins.instruments.jobs.decision import Finder
    from tformer_cli.plugins.instruments.views.decision import VIEW as DECISION
    from tformer_cli.plugins.instruments.views.decision import DecisionOptions

    def decide(*records: HeadsRecord) -> "DecisionRecord":
        # Their names, as metrics would select anew
        names = tuple(map(str, records[0].heads))
        settings = DecisionOptions(method=DECIDED_BY, heads=names)
        return Finder(opened, settings, seed=1).explain(records)

    if len(sentences) == 2:
        with suppress(DataError):  # They do not part, or have no place in common
            shared[DECISION.name] = decide(*(sentence.heads for sentence in sentences))
            return
    for n, sentence in enumerate(sentences):
        if not sentence.heads.lacks_gaps:
            sentences[n] = replace(
                sentence, views={**sentence.views, DECISION.name: decide(sentence.heads)}
            )


def _inspect(subject: Subject, record: HeadsRecord, options: ReportOptions) -> SentenceReport:
    check_residual(record.captured.residual, options.tolerance, f"line {record.index + 1}")
    return SentenceReport(
        heads=record,
        views={
            name: data
            for name, view in VIEWS.items()
            if isinstance(view, SentenceView)
            and subject.summary.task in view.tasks
            and (data := view.report(subject, record, options)) is not None
        },
    )


def _parse_step(subject: Subject, text: str) -> tuple[HeadId, str]:
    from tformer_cli.plugins.instruments.views.step import one_head

    name, colon, token = text.partition(":")
    if not colon or not token:
        raise UsageError(f'--step: "{text}" is not HEAD:TOKEN; write cross.0.1:word')
    return one_head(subject, name, "step"), token
