"""`inspect-heads RUN --over-time`: the roles of heads while they were trained."""

from tformer_cli.cli.console import warn
from tformer_cli.cli.inspection.heads_output import HeadsFormat
from tformer_cli.cli.inspection.heads_request import HeadsRequest, check_not_for_terminal
from tformer_cli.cli.inspection.inspect_view import emit_view
from tformer_cli.errors import UsageError
from tformer_cli.inspection.view import NoOptions
from tformer_cli.inspection.views.timeline import VIEW

FORMATS = (HeadsFormat.text, HeadsFormat.jsonl, HeadsFormat.svg, HeadsFormat.png, HeadsFormat.html)
REFUSED = (
    *("TEXT", "--source", "--target", "--target-file", "--rank", "--mode live", "--weights"),
    *("--corpus", "--dump", "--verify"),
)
"""Options without a meaning where no sentence is read."""


def show_heads_over_time(request: HeadsRequest) -> None:
    """Reads what a run has written of its heads, and writes it to stdout or a file.

    Raises:
        UsageError: if there are options without a meaning here, or the format shows maps.
        DataError: if the run has followed no heads.
    """
    check_not_for_terminal(request)
    request.refuse(REFUSED, "--over-time reads what the run has written; leave it out")
    chosen, output = request.chosen, request.output
    if chosen not in FORMATS:
        raise UsageError(f"--over-time: is for {', '.join(FORMATS)}; --format {chosen} shows maps")

    from tformer_cli.workflows.inspection.heads_over_time import heads_over_time

    timeline = heads_over_time(request.model, request.heads)
    if not timeline.courses:
        warn("no head meets the conditions of --heads")
    emit_view(VIEW, [timeline], chosen, output, NoOptions())
