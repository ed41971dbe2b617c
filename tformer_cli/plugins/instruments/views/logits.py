"""The decoder's predictions at each position, and those of each of its layers (logit lens).

A classifier predicts once, the label of the whole text; each layer is read by pooling its states.
A masked language model predicts the token of each gap.

The logit lens (nostalgebraist 2020) reads the hidden state of a layer as if it were the last: the
decoder's final norm, where there is one, then the output projection. For the last layer that is the
model's own output, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.inspect.data import pack_for_page, to_json
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.view import (
    WITH_OUTPUT,
    ReportOptions,
    SentenceView,
    Subject,
    Untuned,
    check_gaps,
)
from tformer_cli.search.hypothesis import Several
from tformer_cli.settings import Option
from tformer_cli.show.document import BLANK, Block, Label, Room, Row, Table, Text, Texts, text
from tformer_cli.show.terminal import (
    NARROWEST_LABEL,
    Item,
    fitted_widths,
    natural_width,
    prose,
    readable,
    whole_items,
)
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import Tensor

    from tformer_cli.heads.names import Inspected, Kind
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.plugins.instruments.lens import Lens

SCHEMA = "tformer.logits/1"
TEXT, IMAGE = "the text", "the image"  # Stand for all that a classifier has read
FEWEST_POSITIONS = 4  # By as many a lens is judged where it was not measured
TOP = 5  # Candidates of a position, unless others are asked for
DIGITS = 4  # Decimal places on the page, for numbers shown with three
MEASURES = {
    "logit": (
        "logit",
        "The number before the softmax: e^logit, shared out over all tokens, is the probability",
    ),
    "p": ("probability", "Probability of the token that was written, from 0 to 1"),
    "rank": ("rank", "The token's rank by probability: 1 is the most probable"),
    "entropy": (
        "uncertainty",
        "The entropy of the distribution, in nats: 0 means that one token is certain",
    ),
    "first": (
        "first at layer",
        "The first layer from which the written token stays the most probable one",
    ),
}
"""Columns of a table of positions: the plain name and the meaning of each."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token of the vocabulary at one position."""

    piece: str
    id: int
    probability: float
    logit: float  # Its product with the hidden state, before the softmax


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """Label smoothing in the training of a model, and the probability that it aims at."""

    label_smoothing: float  # ε
    n_targets: int  # V, the tokens that share ε
    positions: tuple[int, ...]  # Those whose most probable token is near the peak

    @property
    def peak(self) -> float:
        """Probability that training asks for instead of 1: 1 − ε + ε / V."""
        return 1.0 - self.label_smoothing + self.label_smoothing / self.n_targets


@dataclass(frozen=True, kw_only=True)
class LensReading:
    """Prediction of one decoder layer at one position."""

    layer: int  # The layer, from 0
    top: Candidate
    probability: float  # Its probability of the final token
    rank: int  # That token's place by probability, from 1


@dataclass(frozen=True, kw_only=True)
class PositionLogits:
    """The distribution over the next token at one decoder position."""

    position: int  # The position, from 0
    read: str  # The label of the token it has read last
    chosen: Candidate  # The token of the translation that stands there
    log_probability: float  # log p of that token, natural logarithm
    rank: int  # Its place by probability, from 1
    entropy: float  # Entropy of the distribution in nats
    top: tuple[Candidate, ...]
    lens: tuple[LensReading, ...]  # Predictions of each layer; none if the lens was not asked for

    @property
    def first_layer(self) -> int | None:
        """The layer from which on the token is the most probable one; None if it is not at last."""
        first = None
        for reading in reversed(self.lens):
            if reading.rank > 1:
                break
            first = reading.layer
        return first


@dataclass(frozen=True, kw_only=True, repr=False)
class LogitsRecord(SentenceRecord, Several[PositionLogits]):
    """The distributions of all positions of a sentence."""

    sentence: HeadsRecord
    positions: tuple[PositionLogits, ...]  # One for each decoder position
    lens: Lens | None = None  # The lens that layers were read with
    smoothing: Smoothing | None = None  # Where it is known, and explains a probability

    @property
    def _held(self) -> tuple[PositionLogits, ...]:
        return self.positions

    def _repr_html_(self) -> str:
        from tformer_cli.inspect.pages import framed_view

        return framed_view(VIEW, [self])


def layer_logits(
    model: Inspected,
    source_ids: Sequence[int],
    target_input_ids: Sequence[int],
    places: Sequence[int] | None = None,
    lens: Lens | None = None,
    *,
    with_lens: bool = True,
) -> tuple[Tensor, Tensor]:
    """Computes logits (T, V), and those of the lens (L, T, V), in one forced pass; on the CPU.

    A classifier has one position, of the whole text; `places` are the inspected ones. Without
    the lens L is 0.
    """
    import torch

    from tformer_cli.plugins.instruments.lens import UNTUNED, read_layers, single
    from tformer_cli.plugins.instruments.observed import stacks_of

    def logits_of(hidden: Tensor) -> Tensor:
        if places is not None:
            hidden = hidden.index_select(1, torch.tensor(places).to(hidden.device))
        return model.project(hidden)[0].cpu()

    with torch.inference_mode():
        batch, kind = single(model, source_ids, target_input_ids), [*stacks_of(model)][-1]
        if with_lens:
            logits, layers = read_layers(model, batch, kind, lens or UNTUNED, logits_of)
            return logits, torch.stack(layers)
        hidden = model.target_hidden(batch.source, batch.source_mask, batch.target_input)
        logits = logits_of(hidden)
    return logits, logits.new_empty(0, *logits.shape)


def read_logits(
    model: Inspected,
    sentence: HeadsRecord,
    labels: Sequence[str],
    *,
    n_top: int,
    with_lens: bool,
    lens: Lens | None = None,
) -> LogitsRecord:
    """Reads the distributions of every position of a sentence; a blank one has none."""
    if sentence.maps is None:
        return LogitsRecord(sentence=sentence, positions=())
    maps = sentence.maps
    places = [gap.position for gap in sentence.gaps] if sentence.has_places else None
    ids = maps.source_ids, maps.target_input_ids
    logits, layers = layer_logits(model, *ids, places, lens, with_lens=with_lens)
    return LogitsRecord(
        sentence=sentence,
        positions=positions_of(sentence, logits, layers, labels, n_top),
        lens=lens if with_lens else None,
    )


def positions_of(
    sentence: HeadsRecord, logits: Tensor, lens: Tensor, labels: Sequence[str], n_top: int
) -> tuple[PositionLogits, ...]:
    """Describes the logits (T, V) of a sentence's positions, and those of its layers (L, T, V)."""
    # float64 keeps the digits of small probabilities
    logits, lens = logits.double(), lens.double()
    return tuple(
        _position(place, sentence, logits[place], lens[:, place], labels, n_top)
        for place in range(len(logits))
    )


def _position(
    place: int,
    sentence: HeadsRecord,
    logits: Tensor,
    layers: Tensor,
    labels: Sequence[str],
    n_top: int,
) -> PositionLogits:
    import torch

    from tformer_cli.inspect.heads.metrics import entropies

    if sentence.is_labeled:
        token, read = labels.index(sentence.target), IMAGE if sentence.is_image else TEXT
    elif sentence.gaps:
        gap = sentence.gaps[place]
        token, read, place = gap.id, sentence.source_pieces[gap.position], gap.position
    else:
        token, read = sentence.captured.target_ids[place], sentence.input_pieces[place]
    log_probabilities = torch.log_softmax(logits, dim=-1)
    probabilities, layer_probabilities = log_probabilities.exp(), torch.softmax(layers, dim=-1)
    top = probabilities.sort(descending=True, stable=True).indices[:n_top].tolist()
    readings = [
        LensReading(
            layer=layer,
            top=_candidate(int(of_layer.argmax()), of_layer, layers[layer], labels),
            probability=of_layer[token].item(),
            rank=_rank(token, of_layer),
        )
        for layer, of_layer in enumerate(layer_probabilities)
    ]
    return PositionLogits(
        position=place,
        read=read,
        chosen=_candidate(token, probabilities, logits, labels),
        log_probability=log_probabilities[token].item(),
        rank=_rank(token, probabilities),
        entropy=float(entropies(probabilities.numpy())),
        top=tuple(_candidate(i, probabilities, logits, labels) for i in top),
        lens=tuple(readings),
    )


def _candidate(
    token: int, probabilities: Tensor, logits: Tensor, labels: Sequence[str]
) -> Candidate:
    probability, logit = probabilities[token].item(), logits[token].item()
    return Candidate(id=token, piece=labels[token], probability=probability, logit=logit)


NEAR = 0.02  # Probabilities this close to the peak are explained by it; ours


def read_smoothing(subject: Subject, positions: Sequence[PositionLogits]) -> Smoothing | None:
    """Reads label smoothing from the recipe of a run; None if there is none that explains much.

    It explains the most probable tokens whose probability is near its peak.
    """
    from tformer_cli.trainer.loss import count_targets

    if "label_smoothing" not in subject.cached:
        subject.cached["label_smoothing"] = _smoothing_of_recipe(subject.path)
    if not (epsilon := subject.cached["label_smoothing"]):
        return None
    known = Smoothing(label_smoothing=epsilon, n_targets=count_targets(subject.model), positions=())
    near = (p.position for p in positions if abs(p.top[0].probability - known.peak) <= NEAR)
    explained = replace(known, positions=tuple(near))
    return explained if explained.positions else None


def _smoothing_of_recipe(path: Path | None) -> float:
    """Returns ε of a run, or of the run of a checkpoint; 0 if it is not known."""
    import tomllib

    from tformer_cli.files.regular_file import read_regular

    if path is None:
        return 0.0
    run = path.resolve()
    run = run.parents[1] if run.parent.name == "checkpoints" else run
    try:
        recipe = tomllib.loads(read_regular(run / "recipe.toml", 1 << 20).decode())
        epsilon = recipe["training"]["label_smoothing"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return 0.0  # an imported or copied model; nothing else needs the recipe
    return epsilon if isinstance(epsilon, float) and 0.0 < epsilon < 1.0 else 0.0


def _rank(token: int, probabilities: Tensor) -> int:
    """The place of a token by probability, from 1; of equal ones the smaller id is first."""
    probability = probabilities[token]
    ahead = (probabilities > probability).sum() + (probabilities[:token] == probability).sum()
    return int(ahead) + 1


def _positions(sentence: HeadsRecord) -> str:
    if sentence.is_labeled:
        return "The only position has read source.pieces and predicts the label"
    if sentence.has_places:
        if sentence.gives_labels:
            return "Positions are those of words in source.pieces; each predicts its word's label"
        return "Positions are those of gaps in source.pieces; each predicts the token of its gap"
    return "Position i has read target.input_pieces[i] and predicts target.pieces[i]"


POSITION = "position read *chosen log_probability rank entropy top"
WITH_LENS = " first_layer lens"
FEWEST_CANDIDATES = 2  # Candidates that tokens leave room for
LEAST_OF_CANDIDATE = 10  # Cells of a candidate: a label of four, a gap, its probability


def _candidate_table(record: LogitsRecord, room: Room) -> Iterator[Block]:
    """The tokens read and written with their measures, and as many candidates as there is room for.

    Labels make room for two candidates, candidates never take any from a measure.
    """
    positions, sentence = record.positions, record.sentence
    head = ("read", _predicting_verb(sentence), "logit", "p", "rank", "entropy")
    rows: list[Row] = [
        [
            *(p.read, p.chosen.piece),
            *(f"{p.chosen.logit:.2f}", f"{p.chosen.probability:.3f}"),
            *(f"{p.rank:,}", f"{p.entropy:.2f}"),
        ]
        for p in positions
    ]
    table = Table(head=head, rows=rows, labels=(0, 1))
    n_asked = max(len(p.top) for p in positions)
    reserved = min(n_asked, FEWEST_CANDIDATES) * (LEAST_OF_CANDIDATE + table.gap)
    widths = fitted_widths(table, room, room.width - reserved)
    left = room.width - sum(widths) - table.gap * len(widths)
    n_fewest = n_asked
    for row, position in zip(rows, positions, strict=True):
        items = [Item(c.piece, f" {c.probability:.3f}", "", "dim") for c in position.top]
        candidates, n_shown = whole_items(items, left, room)
        row[0] = readable(position.read, room, widths[0])
        row[1] = readable(position.chosen.piece, room, widths[1])
        row.append(candidates)
        n_fewest = min(n_fewest, n_shown)
    yield replace(table, head=(*head, "most probable"), texts=(6,), n_repeated=2)
    whose = "label given" if sentence.gives_labels else f"token {_verb(sentence)}"
    legend = (
        f"logit and p: of the {whose}; p = e^logit / Σ e^logit over all {_units(sentence)}; "
        "rank: 1 is the most probable; entropy in nats"
    )
    if n_fewest < n_asked:
        legend += f"; at least {n_fewest} of {n_asked} candidates shown, --format jsonl has all"
    yield text(prose(legend, room), style="dim")
    if record.smoothing is not None:
        yield text(prose(describe_smoothing(record), room), style="dim")


def describe_smoothing(record: LogitsRecord) -> str:
    """Explains the probabilities that label smoothing holds down."""
    smoothing, unit = record.smoothing, "label" if record.sentence.gives_labels else "token"
    if smoothing is None:
        return ""
    epsilon, many = f"{smoothing.label_smoothing:g}", f"{smoothing.n_targets:,}"
    n_near, n_all = len(smoothing.positions), count_of(len(record.positions), "position")
    return (
        f"{smoothing.peak:.2f} because of label smoothing {epsilon}: training asked for "
        f"1 − {epsilon} + {epsilon}/{many} = {smoothing.peak:.4f} for the right {unit}, not for 1; "
        f"the most probable {unit} is near that at {n_near} of {n_all}"
    )


def _units(sentence: HeadsRecord) -> str:
    return "labels" if sentence.gives_labels else "tokens"


def _predicting_verb(sentence: HeadsRecord) -> str:
    if sentence.gives_labels:
        return "label"
    return "fills in" if sentence.has_places else "writes"


def _verb(sentence: HeadsRecord) -> str:
    return "filled in" if sentence.gaps else "written"


def agreements(positions: Sequence[PositionLogits]) -> list[float]:
    """The share of positions at which each layer, read by the lens, predicts as the model does."""
    return [
        mean(position.lens[layer].top.id == position.top[0].id for position in positions)
        for layer in range(len(positions[0].lens))
    ]


def unread_layers(kind: Kind, positions: Sequence[PositionLogits], lens: Lens) -> Iterator[Text]:
    """Says which layers the lens does not read: by held-out text, or else by this sentence."""
    from tformer_cli.plugins.instruments.lens import READS

    # A share of one or two tokens says nothing of a layer
    is_known = bool(lens.agreement) or len(positions) >= FEWEST_POSITIONS
    shares = {
        layer: lens.agreement.get(f"{kind}.{layer}", here)
        for layer, here in enumerate(agreements(positions)[:-1])
        if is_known
    }
    unread = {str(layer): f"{100 * rate:.0f} %" for layer, rate in shares.items() if rate < READS}
    if unread:
        layers, it = ("layer", "it") if len(unread) == 1 else ("layers", "them")
        of = "of held-out tokens" if lens.agreement else f"of {count_of(len(positions), 'token')}"
        cure = "not even by a map" if lens.maps else "fit maps with `inspect-layers MODEL --tune`"
        yield text(
            f"{layers} {', '.join(unread)}: this lens does not read {it} (agreement "
            f"{', '.join(unread.values())} {of}); {cure}",
            style="yellow",
        )


def lens_table(sentence: HeadsRecord, positions: Sequence[PositionLogits], room: Room) -> Table:
    """A column for each layer; layers that do not fit next to each other stand below."""
    n_layers = len(positions[0].lens)
    rows: list[Row] = [
        [p.chosen.piece, "-" if p.first_layer is None else str(p.first_layer)] for p in positions
    ]
    table = Table(head=(_predicting_verb(sentence), "settled"), rows=rows)
    left = room.width - natural_width(table, room) - table.gap
    most = max(NARROWEST_LABEL, left // n_layers - table.gap - len(" 0.00"))
    for row, position in zip(rows, positions, strict=True):
        for reading in position.lens:
            label = Label(readable(reading.top.piece, room, most))
            style = "bold green" if reading.rank == 1 else ""
            row.append(text((label, style), (f" {reading.top.probability:.2f}", style)))
    layers = [f"layer {reading.layer}" for reading in positions[0].lens]
    texts = tuple(range(2, 2 + n_layers))
    return replace(table, head=(*table.head, *layers), texts=texts, n_repeated=2)


@dataclass(frozen=True, kw_only=True)
class LogitsOptions:
    """Settings of the view."""

    top_k: Annotated[
        int, Option(help="Show the K most probable tokens per position.", metavar="K", min=1)
    ] = TOP
    lens: Annotated[
        bool, Option(help="Logit lens: show what each decoder layer would predict.")
    ] = False
    untuned: Untuned = False


def _shorten_fractions(value: Any) -> Any:
    """Rounds all fractions to one more decimal place than the tab shows."""
    if isinstance(value, dict):
        return {name: _shorten_fractions(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorten_fractions(item) for item in value]
    return round(value, DIGITS) if isinstance(value, float) else value


class LogitsView(SentenceView[LogitsRecord]):
    """Shows the candidates at each position."""

    name = "logits"
    title = "Logits"
    help = """Show the decoder's candidates, entropy and rank.

    There is a row for each target position. With --lens, every decoder layer is read as if it were
    the last (the logit lens): its hidden state goes through the map of `inspect-layers --tune`, if
    there is one, the final norm and the output projection. For a language model, TEXT is its input;
    for a classifier there is one row, with the probabilities of the labels; for a masked language
    model, a row for each [MASK] in TEXT.

    Examples:
        tformer inspect-logits runs/quickstart "The animal was tired."
        tformer inspect-logits runs/quickstart "It is old." --top-k 3 --lens
        tformer inspect-logits runs/quickstart "It is old." --target "Elle est vieille."
    """
    Options = LogitsOptions
    tasks = WITH_OUTPUT
    terms = MEASURES

    def read(self, subject: Subject, sentence: HeadsRecord, options: LogitsOptions) -> LogitsRecord:
        from tformer_cli.plugins.instruments.lens import lens_of

        check_gaps(sentence)
        record = read_logits(
            subject.model,
            sentence,
            subject.labels,
            n_top=options.top_k,
            with_lens=options.lens,
            lens=lens_of(subject, tuned=not options.untuned) if options.lens else None,
        )
        return replace(record, smoothing=read_smoothing(subject, record.positions))

    def report(
        self, subject: Subject, sentence: HeadsRecord, options: ReportOptions
    ) -> LogitsRecord | None:
        if sentence.lacks_gaps:
            return None
        # Without maps: a report of a model that was trained on must not fail for their sake
        labels = subject.labels
        record = read_logits(subject.model, sentence, labels, n_top=TOP, with_lens=True)
        return replace(record, smoothing=read_smoothing(subject, record.positions))

    def json(self, record: LogitsRecord) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "conventions": f"{_positions(record.sentence)}; probabilities come from the model's "
            "softmax, ranks count from 1, layers from 0.",
            **({"lens": "tuned"} if record.lens is not None and record.lens.maps else {}),
            **(
                {"smoothing": to_json(record.smoothing, "label_smoothing peak positions")}
                if record.smoothing is not None
                else {}
            ),
            "positions": [
                to_json(position, POSITION + WITH_LENS if position.lens else POSITION)
                for position in record.positions
            ],
        }

    def blocks(self, record: LogitsRecord, options: LogitsOptions, room: Room) -> Iterator[Block]:
        sentence = record.sentence
        yield Texts(sentence.texts)
        if not record.positions:
            return
        yield BLANK
        yield from _candidate_table(record, room)
        if record.positions[0].lens:
            unit = "label" if sentence.gives_labels else "token"
            says = "labeled it" if sentence.gives_labels else _verb(sentence)
            stack = "decoder" if sentence.model.n_decoder_layers else "encoder"
            yield BLANK
            lens = record.lens
            mapped = ", by fitted maps" if lens is not None and lens.maps else ""
            yield text((f"logit lens: what each {stack} layer would have {says}{mapped}", "bold"))
            yield lens_table(sentence, record.positions, room)
            verb = "given" if sentence.gives_labels else _verb(sentence)
            yield text(
                f"number: the probability of that {unit}; bold: the {unit} that was {verb}; "
                "settled: the layer from which on it stays the most probable one",
                style="dim",
            )
            if lens is not None:
                kind: Kind = "dec" if stack == "decoder" else "enc"
                yield from unread_layers(kind, record.positions, lens)

    def tab(self, record: LogitsRecord, options: object, *, is_alone: bool) -> dict[str, Any]:
        data: dict[str, Any] = pack_for_page(_shorten_fractions(self.json(record)))
        return data | {"smoothing": describe_smoothing(record)} if record.smoothing else data


VIEW = LogitsView()
