"""`tformer inspect-heads`: the maps of sentences, one after the other."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tformer_cli.cli.inspection.heads_output import HeadsFormat, write_records
from tformer_cli.cli.inspection.heads_request import HeadsRequest, check_not_for_terminal
from tformer_cli.cli.inspection.options import (
    CaptureModeChoice,
    open_model,
)
from tformer_cli.cli.inspection.weights_option import OF_ONE_PASS
from tformer_cli.cli.line_progress import counted
from tformer_cli.cli.text_io import warn_of_bytes
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.inspection.record import HeadsRecord
    from tformer_cli.inspection.weighting.weighting import WeightingName


def show_sentences(request: HeadsRequest) -> None:
    """Captures the heads on each sentence and writes it in the chosen format.

    Raises:
        UsageError: if the options contradict each other.
        ArtifactError: if the model directory cannot be used.
        DataError: if a sentence is too long, or there are more or fewer targets.
        TformerError: if maps are less exact than `--verify` asks.
    """
    _check_usage(request)
    counts = LineCounts()
    lines, targets = request.sentences.read(request.texts, counts, quiet=request.quiet)

    from tformer_cli.workflows.inspect_heads import HeadInspector
    from tformer_cli.workflows.inspection.weigh_heads import HeadWeigher

    rank, heads = request.sentences.rank, request.heads
    opened = open_model(request.model, request.opening, quiet=request.quiet, rank=rank)
    weighting: WeightingName = "alpha" if request.weights is None else request.weights.value
    weigher = None if weighting == "alpha" else HeadWeigher(opened, weighting, heads)
    selections = () if weigher else heads
    inspector = HeadInspector(
        opened,
        selections,
        mode=request.sentences.mode.value,
        hypothesis=rank,
        for_page=request.chosen == HeadsFormat.html,
    )
    inspected = inspector.inspect(lines, targets)
    if weigher:
        inspected = map(weigher.weigh, inspected)
    with counted(
        _verified(inspected, request), "inspecting heads", request.output, quiet=request.quiet
    ) as records:
        write_records(
            records,
            request.chosen,
            request.output,
            with_weights=request.weights is not None,
            selected=bool(heads),
        )
    warn_of_bytes(counts)


def _check_usage(request: HeadsRequest) -> None:
    check_not_for_terminal(request)
    request.sentences.check_searched()
    if request.weights in OF_ONE_PASS and request.sentences.mode == CaptureModeChoice.live:
        raise UsageError(
            f"--weights {request.weights}: is measured in one pass over the finished "
            "hypothesis; omit --mode live"
        )


def _verified(records: Iterable["HeadsRecord"], request: HeadsRequest) -> Iterator["HeadsRecord"]:
    """Passes records on and stops at one whose maps are less exact than asked for."""
    for record in records:
        if record.maps is not None:
            request.check_residual(record.captured.residual, f"line {record.index + 1}")
        yield record
