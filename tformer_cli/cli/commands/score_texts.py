"""The part of `tformer score` for language models, masked ones too: log-probabilities of texts."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tformer_cli.cli.console import note, utf8_line, warn
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import (
    count_of_lines,
    file_lines,
    note_choices,
    results,
    warn_of_bytes,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.cli.commands.score import PairOptions
    from tformer_cli.cli.options import DecodingPrecision


def score_texts(
    model: Path,
    pairs: "PairOptions",
    of_translations: Mapping[str, object],
    machine: tuple[str, "DecodingPrecision", Path | None, int],
    *,
    is_masked: bool,
    quiet: bool,
) -> None:
    """Writes the scores of the lines of a text, of a masked language model pseudo-log-likelihoods.

    Args:
        model: the directory of a language model, or a masked one.
        pairs: the text, and how scores are written and where.
        of_translations: options that only translations have, with their values.
        machine: device, precision, adapter and threads.
        is_masked: whether it is a masked one.
        quiet: whether progress is left out.

    Raises:
        UsageError: if one of those options is given.
    """
    if pairs.source is None:
        raise UsageError("--source: is missing; name the file of the texts")
    for name, value in {"--target-file": pairs.target_file, **of_translations}.items():
        if value is not None:
            raise UsageError(f"{name}: MODEL is a language model, without a source; omit it")
    counts = LineCounts()
    lines = file_lines(pairs.source, counts, quiet=quiet)
    from tformer_cli.workflows import score_texts as workflow
    from tformer_cli.workflows.opening.encoder import OpenedEncoder, open_encoder
    from tformer_cli.workflows.opening.generator import OpenedGenerator, open_generator

    device, precision, adapter, threads = machine
    how: dict[str, Any] = {
        "device": device,
        "precision": precision.value,
        "threads": threads,
        "tell": partial(note, quiet=quiet),
        "before_torch": torch_preparation(threads),
    }
    n_truncated = 0
    with results(pairs.output) as stream:
        opened: OpenedEncoder | OpenedGenerator
        if is_masked:
            if adapter is not None:
                raise UsageError("--adapter: is of other models; omit it")
            opened = open_encoder(model, ("masked",), **how)
            found = workflow.score_masked_lines(opened, lines)
        else:
            opened = open_generator(model, adapter=adapter, **how)
            found = workflow.score_text_lines(opened, lines)
        note_choices(opened, quiet=quiet)
        with line_progress(None, "scoring", quiet=quiet) as progress:
            for scored in found:
                n_truncated += scored.is_truncated
                stream.write(utf8_line(workflow.format_text_score(scored, pairs.output_format)))
                progress.update(scored.index + 1)
    warn_of_bytes(counts)
    if n_truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; truncated")
