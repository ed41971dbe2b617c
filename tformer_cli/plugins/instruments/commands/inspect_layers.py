"""`tformer inspect-layers`: the decoder's output for each encoder layer, and maps for lenses."""

from typing import Annotated, Unpack

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.inspect.inspect_view import (
    GivenSentences,
    OpeningArguments,
    SentenceRequest,
    emit_view,
    takes_opening_options,
    view_format,
    view_format_option,
)
from tformer_cli.cli.options import ModelArgument, OutputOption, QuietOption, option_field, refuse
from tformer_cli.cli.progress import line_progress, show_count
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    file_lines,
    note,
    warn_of_bytes,
)
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import WITH_OUTPUT, NoOptions, TextsArgument
from tformer_cli.plugins.instruments.views.layers import MOST_LINES, TUNED_VIEW, VIEW, LayersOptions
from tformer_cli.text.lines import LineCounts


@takes_opening_options
def inspect_layers(
    model: ModelArgument,
    text: TextsArgument = None,
    *,
    sentences: GivenSentences,
    options: LayersOptions,
    tune: str | None = option_field(
        None,
        "Instead fit a map from each earlier layer's states to the last layer's on these "
        "sentences, and store the maps in the model directory for this command and inspect-logits "
        f"--lens. Reads the first {MOST_LINES:,} different lines and holds out every fifth for "
        "testing; --target-file may give targets.",
        shown="off",
        role="reads_file",
    ),
    output_format: Annotated[str | None, view_format_option(VIEW)] = None,
    output: OutputOption = STANDARD_STREAM,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Show what each encoder layer already knows about the translation.

    The decoder reads an earlier encoder layer in place of the last (DecoderLens): you see what it
    would write, and how probable it finds the translation. In a pre-norm model, the layer goes
    through the encoder's final norm. Layers of a post-norm model often give babble without the maps
    of --tune, which works with any model that predicts something; skipped layers are named.

    Examples:
        tformer inspect-layers runs/quickstart "The animal was too tired."
        tformer inspect-layers runs/quickstart --tune corpus/valid.en
        tformer inspect-layers runs/quickstart "It is old." --target "Il est vieux." --untuned
    """
    request = SentenceRequest(
        model=model, text=text, sentences=sentences, output=output, opening=opening, quiet=quiet
    )
    if tune is not None:
        why = "--tune reads its own text; omit it"
        if text:
            raise UsageError(f"TEXT: {why}")
        values = {"source": sentences.source, "target": sentences.target}
        refuse(values | {"untuned": options.untuned or None}, why)
        # Maps of other weights would take the place of MODEL's own, and every later use fail
        why = "--tune stores maps of MODEL's own weights; omit it, or merge it with tformer export"
        refuse({"adapter": opening["adapter"]}, why)
        _tune(request, tune, output_format)
        return
    chosen = view_format(VIEW, output_format, output)
    check_model(model, VIEW.tasks)
    counts = LineCounts()
    lines, targets = request.read(counts)

    from tformer_cli.plugins.instruments.jobs.layers import inspect_layers as read

    records = read(request.open(tasks=VIEW.tasks), lines, targets=targets, settings=options)
    with show_count(records, "inspecting", output, quiet=quiet) as shown_records:
        emit_view(VIEW, shown_records, chosen, output, options)
    warn_of_bytes(counts)


def _tune(request: SentenceRequest, file: str, output_format: str | None) -> None:
    chosen = view_format(VIEW, output_format, request.output)
    if chosen not in TUNED_VIEW.formats:
        raise UsageError(f"--tune: only for text and jsonl; --format {chosen} shows a sentence")
    check_model(request.model, WITH_OUTPUT)
    target_file = request.sentences.target_file
    check_stdin_is_read_once([file, target_file])
    counts = LineCounts()
    lines = file_lines(file, counts, quiet=request.quiet)
    targets = None if target_file is None else file_lines(target_file, counts)

    from tformer_cli.plugins.instruments.jobs.layers import tune_lens

    opened = request.open(tasks=WITH_OUTPUT)
    with line_progress(None, "fitting", quiet=request.quiet) as progress:
        fitted = tune_lens(opened, lines, targets, progress.update)
    emit_view(TUNED_VIEW, [fitted], chosen, request.output, NoOptions())
    warn_of_bytes(counts)
    path = opened.directory.path
    note(
        f"{path}: maps stored; inspect-layers and inspect-logits --lens use them",
        quiet=request.quiet,
    )
