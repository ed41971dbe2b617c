"""Sentences in, the distribution over the next token at each position of their translations out."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Unpack

from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.inspection.views.logits import LogitsRecord, read_logits
from tformer_cli.workflows.inspect_heads import HeadInspector
from tformer_cli.workflows.inspection_model import InspectionOptions, open_for_inspection
from tformer_cli.workflows.open_translator import Opened

N_TOP = 5
"""Most probable tokens that are kept."""


def inspect_logits(
    model: Path | str | ModelDirectory,
    lines: Iterable[str],
    *,
    targets: Iterable[str] | None = None,
    n_top: int = N_TOP,
    with_lens: bool = False,
    **options: Unpack[InspectionOptions],
) -> Iterator[LogitsRecord]:
    """Reads what the decoder would write at each position of sentences' translations.

    Args:
        model: a model directory, or its path.
        lines: the source sentences. A blank one has a record without positions.
        targets: a target for each line, to be looked at instead of the model's translation.
        n_top: most probable tokens to keep at each position.
        with_lens: whether every decoder layer is read too (the logit lens).
        **options: of `open_for_inspection`.

    Returns:
        One record a line, in order.

    Raises:
        UsageError: if a setting cannot be used.
        ArtifactError: if the model directory cannot be used.
        DataError: if a line is too long, or there are more or fewer targets than lines.
    """
    opened = open_for_inspection(model, **options)
    return logits_of(opened, lines, targets, n_top=n_top, with_lens=with_lens)


def logits_of(
    opened: Opened,
    lines: Iterable[str],
    targets: Iterable[str] | None = None,
    *,
    n_top: int = N_TOP,
    with_lens: bool = False,
) -> Iterator[LogitsRecord]:
    """Does the work of `inspect_logits` with an opened model."""
    tokenizer = opened.directory.tokenizer
    labels = tokenizer.pieces(range(tokenizer.vocab_size))
    for sentence in HeadInspector(opened).inspect(lines, targets):
        yield read_logits(
            opened.directory.model, sentence, labels, n_top=n_top, with_lens=with_lens
        )
