"""`tformer inspect-layers`: the command of the view, and maps for lenses."""

from dataclasses import dataclass

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.cli.inspect.inspect_view import (
    CorpusRequest,
    SentenceRequest,
    emit_view,
    view_command,
    view_format,
)
from tformer_cli.cli.options import option_field, refuse
from tformer_cli.cli.streams import warn_of_bytes
from tformer_cli.errors import UsageError
from tformer_cli.inspect.view import WITH_OUTPUT, NoOptions
from tformer_cli.plugins.instruments.views.layers import MOST_LINES, TUNED_VIEW, VIEW, LayersOptions


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Text that maps of layers are fitted to."""

    tune: str | None = option_field(
        None,
        "Instead fit a map from each earlier layer's states to the last layer's on these "
        "sentences, and store the maps in the model directory for this command and inspect-logits "
        f"--lens. Reads the first {MOST_LINES:,} different lines and holds out every fifth for "
        "testing; --target-file may give targets.",
        shown="off",
        role="reads_file",
    )

    def run(
        self, request: SentenceRequest, options: LayersOptions, output_format: str | None
    ) -> None:
        sentences, opening = request.sentences, request.opening
        why = "--tune reads its own text; omit it"
        if request.text:
            raise UsageError(f"TEXT: {why}")
        values = {"source": sentences.source, "target": sentences.target}
        refuse(values | {"untuned": options.untuned or None}, why)
        # Maps of other weights would take the place of MODEL's own, and every later use fail
        why = "--tune stores maps of MODEL's own weights; omit it, or merge it with tformer export"
        refuse({"adapter": opening["adapter"]}, why)
        chosen = view_format(VIEW, output_format, request.output)
        if chosen not in TUNED_VIEW.formats:
            raise UsageError(f"--tune: only for text and jsonl; --format {chosen} shows a sentence")
        check_model(request.model, WITH_OUTPUT)
        corpus = CorpusRequest(
            model=request.model, tasks=WITH_OUTPUT, opening=opening, quiet=request.quiet
        )
        lines = corpus.lines(self.tune)
        targets = sentences.target_file and corpus.lines(sentences.target_file)

        from tformer_cli.plugins.instruments.jobs.layers import tune_lens

        opened = corpus.open()
        with corpus.progress("fitting") as progress:
            fitted = tune_lens(opened, lines, targets, progress)
        emit_view(TUNED_VIEW, [fitted], chosen, request.output, NoOptions())
        warn_of_bytes(corpus.counts)
        path = opened.directory.path
        corpus.tell(f"{path}: maps stored; inspect-layers and inspect-logits --lens use them")


inspect_layers = view_command(VIEW, TuneOptions)
