"""A few sentences in, all of their inspection out, for one page."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.config_file import WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.files.hashes import hash_file
from tformer_cli.inspection.capture.heads import HeadId, head_layout
from tformer_cli.inspection.heads.selectors import select_heads
from tformer_cli.inspection.record import CaptureMode, HeadsRecord
from tformer_cli.inspection.views.flow import read_flow
from tformer_cli.inspection.views.logits import read_logits
from tformer_cli.inspection.views.report import (
    Report,
    SentenceReport,
    ablate_sentence,
    clearest_heads,
    telling_row,
)
from tformer_cli.inspection.walkthrough.step import StepRecord, Subject
from tformer_cli.inspection.walkthrough.tokens import find_token
from tformer_cli.inspection.walkthrough.walkthrough import walk_through
from tformer_cli.workflows.inspect_heads import HeadInspector
from tformer_cli.workflows.inspect_positions import N_POSITIONS, inspect_positions
from tformer_cli.workflows.inspect_step import TOLERANCE, check_steps
from tformer_cli.workflows.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.open_translator import Opened

N_TOP = 5
"""Most probable tokens that are kept of each position."""
FEWEST_POSITIONS = 32
"""Position vectors that are shown even if the sentences are shorter."""


def inspect_report(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    heads: Sequence[str] = (),
    steps: Sequence[str] = (),
    mode: CaptureMode = "forced",
    hypothesis: int = 1,
    with_ablation: bool = True,
    tolerance: float = TOLERANCE,
    **options: Unpack[InspectionOptions],
) -> Report:
    """Inspects a few sentences in every way that a page shows.

    Args:
        model: a model directory, or its path.
        lines: the source sentences; blank ones are skipped.
        targets: a target for each line, to be looked at instead of the model's translation.
        heads: heads that are shown, by the grammar of `inspection.heads.selectors`; none: all.
        steps: walk-throughs, each ``HEAD:TOKEN``; none: the clearest head of each kind, for a
            token whose row tells most.
        mode: how maps are captured, as `inspect_heads` does; all else is of one forced pass.
        hypothesis: which of the model's translations to look at, 1 the best.
        with_ablation: whether the loss without each head is measured.
        tolerance: largest difference of maps and steps from the model's own numbers.
        **options: of `open_for_inspection`.

    Raises:
        UsageError: if `heads` or `steps` name nothing, a setting cannot be used, or given targets
            are to be captured live.
        ArtifactError: if the model directory cannot be used.
        DataError: if there is no sentence, one is too long, or targets are more or fewer.
        TformerError: if what would be shown misses the model's own numbers by more.
    """
    opened = open_for_inspection(model, hypothesis=hypothesis, **options)
    reporter = Reporter(
        opened,
        heads=heads,
        steps=steps,
        mode=mode,
        hypothesis=hypothesis,
        with_ablation=with_ablation,
        tolerance=tolerance,
    )
    return reporter.report(lines, targets)


class Reporter:
    """Inspects sentences with an opened model; see `inspect_report`."""

    def __init__(
        self,
        opened: Opened,
        *,
        heads: Sequence[str] = (),
        steps: Sequence[str] = (),
        mode: CaptureMode = "forced",
        hypothesis: int = 1,
        with_ablation: bool = True,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Chooses the heads and the walk-throughs.

        The search must return as many hypotheses as `hypothesis` says.
        """
        self._tolerance = tolerance
        self._opened = opened
        self._model = opened.directory.model
        self._inspector = HeadInspector(
            opened, heads, mode=mode, hypothesis=hypothesis, for_page=True
        )
        self._steps = [self._parse_step(step) for step in steps]
        self._with_ablation = with_ablation
        tokenizer = opened.directory.tokenizer
        self._labels = tuple(tokenizer.pieces(range(tokenizer.vocab_size)))

    def report(
        self,
        lines: Iterable[str],
        targets: Iterable[str] | None = None,
        observe: Callable[[int], None] = lambda _: None,
    ) -> Report:
        """Inspects sentences.

        Args:
            lines: the source sentences.
            targets: a target for each line.
            observe: is told how many lines are done.
        """
        sentences = []
        for record in self._inspector.inspect(lines, targets):
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
        for head, token in self._steps:
            if not any(step.head == head for sentence in sentences for step in sentence.steps):
                find_token(token, sentences[0].heads.row_labels(head.kind), "--step")
        return Report(
            model_hash=hash_file(self._opened.directory.path / WEIGHTS),
            positions=inspect_positions(
                self._opened.directory, n_positions=self._n_positions(sentences)
            ),
            sentences=tuple(sentences),
        )

    def _inspect(self, record: HeadsRecord) -> SentenceReport:
        residual = record.captured.residual
        if not residual <= self._tolerance:
            raise TformerError(
                f"line {record.index + 1}: residual {residual:.2g} exceeds --verify "
                f"{self._tolerance:.2g}; the maps do not reproduce the model's output so "
                "exactly"
            )
        return SentenceReport(
            heads=record,
            steps=tuple(self._walk_throughs(record)),
            logits=read_logits(self._model, record, self._labels, n_top=N_TOP, with_lens=True),
            flow=read_flow(self._model, record),
            ablation=ablate_sentence(self._model, record, record.heads)
            if self._with_ablation
            else None,
        )

    def _walk_throughs(self, record: HeadsRecord) -> list[StepRecord]:
        """The walk-throughs of a sentence: those asked for that it has, or the clearest ones."""
        chosen = [(head, telling_row(record, head)) for head in clearest_heads(record)]
        if self._steps:
            chosen = [
                (head, row)
                for head, token in self._steps
                if (row := _row_of(token, record.row_labels(head.kind))) is not None
            ]
        records = [
            walk_through(
                self._model,
                Subject(sentence=record, head=head, row=row, output_labels=self._labels),
            )
            for head, row in chosen
        ]
        for walk in records:
            check_steps(walk, self._tolerance)
        return records

    def _parse_step(self, text: str) -> tuple[HeadId, str]:
        name, colon, token = text.partition(":")
        if not colon or not token:
            raise UsageError(f'--step: "{text}" is not HEAD:TOKEN; write cross.0.1:word')
        selected = select_heads([name], head_layout(self._model), option="--step")
        if len(selected) > 1:
            raise UsageError(f'--step: "{name}" names {len(selected)} heads; name one')
        return selected[0], token

    def _n_positions(self, sentences: Sequence[SentenceReport]) -> int:
        """As many positions as the longest sentence has, within what can be shown."""
        longest = max(
            max(len(sentence.heads.source_pieces), len(sentence.heads.target_pieces))
            for sentence in sentences
        )
        return min(max(longest, FEWEST_POSITIONS), N_POSITIONS, self._model.config.max_positions)


def _row_of(token: str, labels: Sequence[str]) -> int | None:
    """Position of a token; None if a sentence does not have it."""
    try:
        return find_token(token, labels)
    except UsageError:
        return None
