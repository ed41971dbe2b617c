"""One head for one token, step by step, with the model's own numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.errors import DataError, TformerError, UsageError
from tformer_cli.inspection.capture.heads import head_layout
from tformer_cli.inspection.heads.selectors import select_heads
from tformer_cli.inspection.walkthrough.step import StepRecord, Subject
from tformer_cli.inspection.walkthrough.tokens import find_token
from tformer_cli.inspection.walkthrough.walkthrough import walk_through
from tformer_cli.workflows.inspect_heads import HeadInspector
from tformer_cli.workflows.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.open_translator import Opened

TOLERANCE = 1e-4
"""Float32 computes a layer to within some 1e-6; a wrong formula misses by far more than this."""


def inspect_step(
    model: Path | str | ModelDirectory,
    line: str,
    *,
    token: str,
    head: str,
    key: str | None = None,
    target: str | None = None,
    tolerance: float = TOLERANCE,
    **options: Unpack[InspectionOptions],
) -> StepRecord:
    """Walks through the computation of one head for one token.

    Args:
        model: a model directory, or its path.
        line: the source sentence.
        token: a piece or word of the head's rows (the source, or what the decoder predicts), its
            n-th occurrence as ``it#2``, or a position; see `inspection.walkthrough.tokens`.
        head: exactly one head, by the grammar of `inspection.heads.selectors`.
        key: the key that is worked out as an example, named as `token` is: a piece or word of the
            head's columns; None: the heaviest.
        target: a target to look at instead of the model's translation.
        tolerance: largest difference from the model's own numbers that is let pass.
        **options: of `open_for_inspection`.

    Raises:
        UsageError: if `head` is not one head, there is no such token, or the token may not see the
            key.
        ArtifactError: if the model directory cannot be used.
        DataError: if the line is blank or too long.
        TformerError: if a step misses the model's own numbers by more than the tolerance.
    """
    opened = open_for_inspection(model, **options)
    return step_of(
        opened, line, token=token, head=head, key=key, target=target, tolerance=tolerance
    )


def step_of(
    opened: Opened,
    line: str,
    *,
    token: str,
    head: str,
    key: str | None = None,
    target: str | None = None,
    tolerance: float = TOLERANCE,
) -> StepRecord:
    """Does the work of `inspect_step` with an opened model."""
    model, tokenizer = opened.directory.model, opened.directory.tokenizer
    selected = select_heads([head], head_layout(model), option="--head")
    if len(selected) > 1:
        raise UsageError(
            f'--head: "{head}" names {len(selected)} heads, from {selected[0]} to {selected[-1]}; '
            "name one"
        )
    targets = None if target is None else [target]
    sentence = next(HeadInspector(opened, [head]).inspect([line], targets))
    if sentence.maps is None:
        raise DataError("line 1: the sentence is blank; give one that is not")
    subject = Subject(
        sentence=sentence,
        head=selected[0],
        row=find_token(token, sentence.row_labels(selected[0].kind)),
        output_labels=tuple(tokenizer.pieces(range(tokenizer.vocab_size))),
    )
    if key is not None:
        subject = replace(subject, key=_visible_key(key, subject))
    record = walk_through(model, subject)
    check_steps(record, tolerance)
    return record


def _visible_key(wanted: str, subject: Subject) -> int:
    """Finds the key that a person means; it must be one that the query may see."""
    key = find_token(wanted, subject.keys, "--key")
    if key >= subject.n_visible:
        raise UsageError(
            f'--key: {subject.keys[key]} comes after "{subject.query}", which may not see it; name '
            f"one of {', '.join(subject.keys[: subject.n_visible])}"
        )
    return key


def check_steps(record: StepRecord, tolerance: float) -> None:
    """Makes sure that every step shows what the model computes.

    Raises:
        TformerError: if one misses the model's own numbers by more than the tolerance.
    """
    for step in record.steps:
        for check in step.checks:
            if not check.difference <= tolerance:
                raise TformerError(
                    f"step {step.number}, {check.what}: differs by {check.difference:.2g} "
                    f"from the model's own, more than --verify {tolerance:.2g}; what is "
                    "shown would not be what it computes"
                )
