"""Circuits: the heads that keep a decision, of one model or of several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.artifacts.config_file import check_model
from tformer_cli.inspect.data import jsonable, to_json
from tformer_cli.inspect.view import WITH_OUTPUT, CorpusView, Request, with_half
from tformer_cli.settings import Option, setting
from tformer_cli.show.document import BLANK, Block, Facts, Room, Row, Table, Text, text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.record import ModelSummary
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.instruments.minimal_pairs import MinimalPair

SCHEMA = "tformer.circuit/1"
MEASURES = {
    "faithful": "d with only these heads kept and all others patched with the other sentence: 0 is "
    "all patched, 1 none; values outside this range occur",
    "complete": "the same with these heads patched and the others kept: near 0 if no others do "
    "their work",
    "decides": "pairs that the circuit still decides as the model does",
    "random": "mean of 50 random sets of equal size, and the share of them as faithful as this one",
    "carried": "share of the difference between the two sentences that is undone when all heads "
    "are patched; embeddings and feed-forward layers do the rest",
    "without": "faithfulness lost when only this head is patched",
    "alone": "faithfulness of only this head",
    "reads": "mean weight on the tokens that differ: in cross-attention at the decision, "
    "in other heads where it is largest",
}
"""Columns and their meanings."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share with its 95 % interval over sentences.

    It has none if heads undo so little that some draws of sentences have nothing to share.
    """

    value: float
    low: float | None
    high: float | None

    @property
    def shown(self) -> Text:
        if self.low is None or self.high is None:
            return text(f"{self.value:.2f}", (" -", "dim"))
        return with_half(self.value, self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class CircuitHead:
    """A head and its part in the decision."""

    id: str
    kind: Kind
    layer: int
    head: int
    in_circuit: bool
    without: float
    alone: float
    reads: float | None

    @property
    def cause(self) -> float:
        return self.without + self.alone


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Measures of a circuit on decisions that did not choose it."""

    d: tuple[float, float, float]  # Means: all heads, all patched, the other sentence
    faithfulness: Share
    completeness: Share
    decides: float
    random: float
    random_reach: float
    without_layer: dict[str, float]  # Faithfulness that is lost with all heads of a layer patched

    @property
    def carried(self) -> float:
        whole, patched, other = self.d
        return (whole - patched) / (whole - other)


@dataclass(frozen=True, kw_only=True)
class ModelCircuit:
    """The circuit of one model."""

    model: ModelSummary
    n_given: int
    n_chosen: int  # Pairs that chose the heads
    n_judged: int  # Pairs that judged them; the remaining ones are decided otherwise
    heads: tuple[CircuitHead, ...]  # By cause, the strongest first
    curve: tuple[float, ...]  # Faithfulness of the first 1, 2, … of them
    verdict: Verdict
    refused: tuple[str, ...] = ()  # Pairs whose words the model does not have, and why

    @property
    def circuit(self) -> list[CircuitHead]:
        return [head for head in self.heads if head.in_circuit]


@dataclass(frozen=True, kw_only=True)
class NoCircuit:
    """A model in which no circuit was found, and why."""

    model: ModelSummary
    reason: str


@dataclass(frozen=True, kw_only=True)
class LayerAgreement:
    """A kind and layer in the circuits of several models."""

    id: str
    heads: tuple[int, ...]  # In the circuit of each model
    without: tuple[float, ...]  # Faithfulness that each model loses with all heads there patched
    needed_in: int  # Models whose circuits would not be faithful enough without


@dataclass(frozen=True, kw_only=True)
class CircuitsRecord:
    """The circuits of some models for the same pairs."""

    pairs: str  # Their kind or file
    example: MinimalPair
    least: float
    models: tuple[ModelCircuit, ...]
    failed: tuple[NoCircuit, ...] = ()

    def __str__(self) -> str:
        counts = (f"{m.model.name}: {count_of(len(m.circuit), 'head')}" for m in self.models)
        return f"{self.pairs}: {', '.join(counts)}"

    @property
    def layers(self) -> list[LayerAgreement]:
        """Kinds and layers; numbers of heads mean nothing from one training to the next."""
        losses = [model.verdict.without_layer for model in self.models]
        # A dictionary keeps their order, where models differ in depth too
        places = dict.fromkeys(place for loss in losses for place in loss)
        layers = []
        for place in places:
            without = tuple(loss.get(place, 0.0) for loss in losses)
            numbers = tuple(
                sum(f"{head.kind}.{head.layer}" == place for head in model.circuit)
                for model in self.models
            )
            needed_in = sum(loss > 1 - self.least for loss in without)
            if needed_in or any(numbers):
                layers.append(
                    LayerAgreement(id=place, heads=numbers, without=without, needed_in=needed_in)
                )
        return sorted(layers, key=lambda layer: (-layer.needed_in, -sum(layer.without)))


@dataclass(frozen=True, kw_only=True)
class CircuitOptions:
    """Settings of the view."""

    draw: Annotated[
        int,
        Option(
            help="Draw N pairs of a built-in kind, or of a larger file; half of them choose heads.",
            metavar="N",
            min=10,
        ),
    ] = 40
    faithfulness: Annotated[
        float,
        Option(
            help="Keep at least this share of the decision, on the pairs that choose the heads.",
            metavar="X",
            min=0.0,
            max=1.0,
        ),
    ] = 0.9
    top: Annotated[int, Option(help="Show the N strongest heads.", metavar="N", min=1)] = 10


@dataclass(frozen=True, kw_only=True)
class CircuitInputs:
    """Pairs of sentences, and other models to compare."""

    pairs: Annotated[
        str,
        Option(
            help="A built-in kind of pairs (pronoun, agreement, number, negation, rating, "
            "repeats), or a file with tab-separated SENTENCE, OTHER and, optionally, TARGET and "
            "FOIL on each line.",
            metavar="PAIRS",
            role="reads_file",
            is_argument=True,
        ),
    ]
    models: list[Path] | None = setting(
        None,
        "Another model, such as one trained with another seed. Repeatable.",
        metavar="MODEL",
        role="reads_model",
    )

    def find_pairs(self, request: Request, n_drawn: int) -> str | list[MinimalPair]:
        """Reads the pairs of a file, or makes sure that there is such a kind."""
        from tformer_cli.plugins.instruments.minimal_pairs import check_name, read_pairs

        # Not is_file: a pipe such as <(head pairs.tsv) is read, too
        if self.pairs != "-" and (not Path(self.pairs).exists() or Path(self.pairs).is_dir()):
            check_name(self.pairs)
            return self.pairs
        pairs = list(read_pairs(request.lines(self.pairs), self.pairs))
        if n_again := request.counts.lines - len(pairs):
            request.tell(f"{count_of(n_again, 'line')} skipped: blank or repeated pairs")
        if len(pairs) > n_drawn:
            request.tell(f"drawing {n_drawn} of {len(pairs):,} pairs; --draw N takes more")
        return pairs


def _model(model: ModelCircuit) -> dict[str, Any]:
    return {
        "model": vars(model.model),
        **to_json(model, "n_given n_chosen n_judged"),
        "circuit": [head.id for head in model.circuit],
        **to_json(model, "*verdict carried=verdict.carried heads curve"),
    }


class CircuitView(CorpusView[CircuitsRecord]):
    """Shows circuits."""

    name = "circuit"
    title = "The heads that keep a decision"
    help = """Find the fewest heads that keep a decision.

    The sentences of a pair differ in a word that decides another word: it was too tired (il), it
    was too wide (elle). Half of the pairs choose the heads that keep the decision when every other
    head computes what it does in the other sentence; the other half tests these heads. With
    --models, each model has its own circuit, and a table counts the models whose circuit includes
    each kind and layer.

    Examples:
        tformer inspect-circuit runs/quickstart pronoun
        tformer inspect-circuit runs/ratings rating --models runs/seed-2 --models runs/seed-3
        tformer inspect-circuit runs/quickstart pairs.tsv --faithfulness 0.8
    """
    job = "tformer_cli.plugins.instruments.jobs.circuit:inspect_circuit"
    Options, Inputs = CircuitOptions, CircuitInputs
    tasks = WITH_OUTPUT

    def read(
        self, request: Request, inputs: CircuitInputs, options: CircuitOptions
    ) -> CircuitsRecord:
        models = inputs.models or []
        for place in models:
            check_model(place, self.tasks)
        pairs = inputs.find_pairs(request, options.draw)

        inspect_circuit: Callable[..., CircuitsRecord] = self.load_job()

        def open_models() -> Iterator[Opened]:
            for place in (request.model, *models):
                request.tell(f"finding the circuit of {place}")
                yield request.open(place)

        with request.steps("patching") as step:
            record = inspect_circuit(
                open_models(), pairs, name=inputs.pairs, settings=options, before_batch=step,
                seed=request.seed,
            )  # fmt: skip
        for row in () if isinstance(pairs, str) else record.models:
            if row.refused:
                n_refused = count_of(len(row.refused), "pair")
                request.tell(f"{row.model.name} refused {n_refused}, such as {row.refused[0]}")
        return record

    def json(self, record: CircuitsRecord) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "conventions": "faithfulness(C) = (d(C) - d(none)) / (d(all) - d(none)), d with the "
            "heads of C kept and all others patched with the other sentence, means over pairs; "
            "completeness is that of all heads but C; [low, high] is 95 % of the bootstrap, null "
            "if d(all) - d(none) is not above 0 in every draw",
            "measures": MEASURES,
            **to_json(record, "pairs example least"),
            "models": [_model(model) for model in record.models],
            "failed": [{"model": vars(row.model), "reason": row.reason} for row in record.failed],
            "layers": jsonable(record.layers),
        }

    def blocks(
        self, record: CircuitsRecord, options: CircuitOptions, room: Room
    ) -> Iterator[Block]:
        example = record.example
        decided = example.target, example.foil
        yield Facts(
            [
                ("pairs", f"{record.pairs}, such as"),
                (decided[0] or "sentence", example.sentence),
                (decided[1] or "other", example.other),
            ]
        )
        yield BLANK
        yield _verdicts(record)
        for failed in record.failed:
            yield text(f"{failed.model.name}: {failed.reason}")
        yield _legend("faithful complete decides random carried")
        for model in record.models:
            yield BLANK
            yield _heads(model, options.top, named=len(record.models) + len(record.failed) > 1)
        yield _legend("without alone reads", "●: in the circuit; ")
        if len(record.models) > 1:
            yield BLANK
            yield from _agreement(record)


def _legend(names: str, before: str = "") -> Block:
    return text(before + "; ".join(f"{n}: {MEASURES[n]}" for n in names.split()), style="dim")


def _verdicts(record: CircuitsRecord) -> Table:
    rows: list[Row] = []
    for model in record.models:
        verdict = model.verdict
        rows.append(
            [
                model.model.name,
                f"{model.n_chosen + model.n_judged} of {model.n_given}",
                f"{len(model.circuit)} of {len(model.heads)}",
                verdict.faithfulness.shown,
                verdict.completeness.shown,
                f"{100 * verdict.decides:.0f} %",
                f"{verdict.random:.2f}, {100 * verdict.random_reach:.0f} %",
                f"{100 * verdict.carried:.0f} %",
            ]
        )
    head = ("model", "pairs", "heads", "faithful", "complete", "decides", "random", "carried")
    rows += [[model.model.name, *["-"] * (len(head) - 1)] for model in record.failed]
    return Table(title="circuits", head=head, rows=rows, labels=(0,))


def _heads(model: ModelCircuit, n_top: int, *, named: bool) -> Table:
    # All of a circuit are shown, whatever their rank
    shown = [head for n, head in enumerate(model.heads) if n < n_top or head.in_circuit]
    rows: list[Row] = [
        [
            head.id,
            "●" if head.in_circuit else "",
            f"{head.without:+.2f}",
            f"{head.alone:+.2f}",
            "-" if head.reads is None else f"{head.reads:.2f}",
        ]
        for head in shown
    ]
    title = f"heads by effect{f', {model.model.name}' if named else ''}"
    return Table(
        title=title, head=("head", "", "without", "alone", "reads"), rows=rows, texts=(0, 1)
    )


def _agreement(record: CircuitsRecord) -> Iterator[Block]:
    n_models = len(record.models)
    rows: list[Row] = [
        [
            layer.id,
            f"{layer.needed_in} of {n_models}",
            *(f"{n} {loss:+.2f}" for n, loss in zip(layer.heads, layer.without, strict=True)),
        ]
        for layer in record.layers
    ]
    head = ("layer", "needed in", *(model.model.name for model in record.models))
    yield Table(title="layers of each model", head=head, rows=rows, texts=(0,))
    yield text(
        "number of heads in the circuit, and the faithfulness lost when all heads of the "
        f"layer are patched; needed: more than {1 - record.least:.2f}",
        style="dim",
    )
    values = [model.verdict.faithfulness.value for model in record.models]
    mean = sum(values) / n_models
    yield BLANK
    yield text(f"faithfulness: mean {mean:.2f}, from {min(values):.2f} to {max(values):.2f}")
    yield text(_findings(record))


def _findings(record: CircuitsRecord) -> str:
    n_models = len(record.models)
    needed = [layer for layer in record.layers if layer.needed_in]
    always = ", ".join(layer.id for layer in needed if layer.needed_in == n_models)
    rest = ", ".join(
        f"{layer.id} ({layer.needed_in})" for layer in needed if layer.needed_in < n_models
    )
    task = f"all {n_models} models need {always}, so it may be due to the task"
    if not always:
        task = f"no layer is needed by all {n_models} models"
    return f"{task}; {f'some need {rest}, perhaps by chance' if rest else 'none needs another'}"


VIEW = CircuitView()
