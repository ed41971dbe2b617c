"""Knowledge of layers: accuracies of linear probes compared with those of a control task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.artifacts.config_file import TASKS
from tformer_cli.inspect.data import to_json
from tformer_cli.inspect.view import CorpusView, Request, SourceOption
from tformer_cli.settings import Option, setting
from tformer_cli.show.document import BLANK, Block, Room, Row, Table, Text, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tformer_cli.inspect.record import ModelSummary
    from tformer_cli.plugins.instruments.probes import LayerProbe, ProbeResult

SCHEMA = "tformer.probe/1"
Property = Literal["position", "previous", "next", "length", "label"]


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Probes of a model."""

    model: ModelSummary
    n_sentences: int
    skipped: int  # Sentences whose words are others to the tokenizer, so that labels have no place
    results: tuple[ProbeResult, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Settings of the view."""

    property: Annotated[
        tuple[Property, ...],
        Option(
            help="Property to probe for: position, previous, next (the token before or after), "
            "length (of the word) or label (from --labels). Repeatable.",
            metavar="NAME",
            shown_default="all",
        ),
    ] = ()
    max_tokens: Annotated[
        int,
        Option(
            help="Read sentences until there are this many tokens per side.", metavar="N", min=100
        ),
    ] = 8000


@dataclass(frozen=True, kw_only=True)
class ProbeInputs:
    """A corpus, and what belongs to each of its lines."""

    source: SourceOption = None
    labels: str | None = setting(
        None,
        "Labels for the words of --source, such as parts of speech: one per word, separated by "
        "spaces, line by line.",
        shown_default="none",
        role="reads_file",
    )
    target_file: str | None = setting(
        None,
        "Targets that the decoder reads, one per source line.",
        shown_default="the model's translations",
        role="reads_file",
    )


def _percent(value: float, interval: tuple[float, float]) -> Text:
    half = 50 * (interval[1] - interval[0])
    return text(f"{100 * value:.1f}", (f" ±{half:.1f}", "dim"))


def layer_name(layer: LayerProbe) -> str:
    return "embedding" if layer.layer < 0 else f"layer {layer.layer}"


class ProbeView(CorpusView[ProbeReport]):
    """Shows probes layer by layer."""

    name = "probe"
    title = "Linear probes"
    help = """Show what each layer knows about words, with linear probes.

    A softmax regression predicts a property of each token from its state: its position, the token
    before or after, the length of its word, or your own labels. It is tested on held-out sentences
    and compared with the share of the most frequent label and with a control task, random labels by
    word (Hewitt and Liang 2019): accuracy without selectivity is only the probe's memory. Labels
    belong to the words of the source, or of a language model's text.

    Examples:
        tformer inspect-probe runs/quickstart -i corpus/valid.en
        tformer inspect-probe runs/quickstart -i a.en --labels a.tags --property label
        tformer inspect-probe runs/shakespeare -i a.txt --property next
    """
    job = "tformer_cli.plugins.instruments.jobs.probe:inspect_probe"
    Options, Inputs = ProbeOptions, ProbeInputs
    tasks = tuple(kind for kind, row in TASKS.items() if row.reads != "images")

    def read(self, request: Request, inputs: ProbeInputs, options: ProbeOptions) -> ProbeReport:
        lines = request.lines(inputs.source)
        labels, targets = (
            file and request.lines(file) for file in (inputs.labels, inputs.target_file)
        )

        inspect_probe: Callable[..., ProbeReport] = self.load_job()

        opened = request.open()
        with request.progress("reading") as progress:
            return inspect_probe(
                opened, lines, labels=labels, targets=targets, settings=options, progress=progress,
                seed=request.seed,
            )  # fmt: skip

    def lines(self, record: ProbeReport, options: object) -> Iterator[dict[str, Any]]:
        names = "property=name kind n_labels n_fitted n_held_out majority"
        of_layer = "layer accuracy control selectivity"
        for probe in record.results:
            for layer in probe.layers:
                yield {
                    "schema": SCHEMA,
                    **to_json(probe, names),
                    **to_json(layer, of_layer),
                    "ci95": to_json(
                        layer, "accuracy=accuracy_interval selectivity=selectivity_interval"
                    ),
                }

    def blocks(self, record: ProbeReport, options: object, room: Room) -> Iterator[Block]:
        sentences = count_of(record.n_sentences, "different sentence")
        yield text((record.model.name, "bold"), f"  {sentences}, every fifth held out")
        for probe in record.results:
            yield BLANK
            title = "encoder" if probe.kind == "enc" else "decoder"
            yield text((f"{probe.name} in the {title}", "bold"), f": {probe.meaning}")
            yield text(
                f"{probe.n_labels} labels, {probe.n_fitted:,} tokens and {probe.n_held_out:,} held "
                f"out; the most frequent label {100 * probe.majority:.1f} %",
                style="dim",
            )
            rows: list[Row] = [
                [
                    layer_name(layer),
                    _percent(layer.accuracy, layer.accuracy_interval),
                    f"{100 * layer.control:.1f}",
                    _percent(layer.selectivity, layer.selectivity_interval),
                ]
                for layer in probe.layers
            ]
            yield Table(head=("states of", "accuracy", "control", "selectivity"), rows=rows)
        yield text(
            "percent of held-out tokens, with half the width of 95 % intervals (1,000 resamples "
            "of the sentences; the draw of random labels is not in them); control: the same probe "
            "on random labels by word; selectivity: accuracy - control",
            style="dim",
        )
        if record.skipped:
            yield text(
                f"{count_of(record.skipped, 'sentence')} skipped: their labels do not match the "
                "words of the tokenizer",
                style="dim",
            )


VIEW = ProbeView()
