"""Why one word and not another: a decision of a model, and the parts of the model that cause it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from tformer_cli.errors import UsageError
from tformer_cli.inspect.data import jsonable, pack_for_page, to_json
from tformer_cli.inspect.view import (
    WITH_OUTPUT,
    CorpusView,
    Request,
    Selections,
    SourceOption,
    TextsArgument,
)
from tformer_cli.settings import Option, setting
from tformer_cli.show.document import BLANK, Block, Map, Room, Row, SideBySide, Table, Texts, text
from tformer_cli.wording import count_of, is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.record import HeadsRecord

SCHEMA = "tformer.decision/1"
Method = Literal["zero", "mean", "resample", "patch", "direct", "edges", "gradients"]
METHODS: tuple[Method, ...] = get_args(Method)
EFFECTS = {
    "zero": "with its output set to 0",
    "mean": "with its mean output over positions",
    "resample": "with its output at random positions, the mean of 8 draws",
    "patch": "with its output in OTHER",
    "back": "of OTHER's d with its output in SENTENCE",
    "direct": "its own term of d; with the embedding and biases, the terms sum to d",
    "estimate": "a first-order estimate of patch, or of zero",
}
"""Columns of effects and their meanings."""
SHOWN = 0.1  # Smallest effect, in logits, for which a position is shown
BY_CAUSE = ("patch", "zero", "mean", "resample", "direct", "estimate")
"""The first of these that was measured decides the order of parts."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A head, the heads of a layer together, or a feed-forward layer, and its effects."""

    id: str
    kind: Kind  # For a feed-forward layer its stack: enc or dec
    layer: int
    head: int | None  # None for a layer's heads together, and for a feed-forward layer
    effects: dict[str, float]  # By `EFFECTS`: changes of d, and the direct term
    at: str = ""  # The token at whose position the head was looked at
    row: int | None = None  # Number of that position
    attends: tuple[
        tuple[str, float], ...
    ] = ()  # Tokens that it attends to most there, with weights

    @property
    def cause(self) -> float:
        return next((self.effects[name] for name in BY_CAUSE if name in self.effects), 0.0)


@dataclass(frozen=True, kw_only=True)
class EffectMap:
    """Effects by rows and positions; None where a position has no partner."""

    name: str
    direction: str  # The change: patch, back or zero
    kind: Kind  # enc: positions are those of the source
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]

    @property
    def strongest(self) -> list[int]:
        """Positions at which anything has an effect that is worth a row."""
        return [
            place
            for place in range(len(self.columns))
            if any(abs(row[place] or 0.0) >= SHOWN for row in self.values)
        ]


@dataclass(frozen=True, kw_only=True)
class TokenEffect:
    """An input token, and its share of d."""

    side: Literal["source", "prefix"]
    piece: str
    integrated: float
    gradient: float  # gradient × input
    alti: float | None  # Share of the token in the state that decides; None where none is known


@dataclass(frozen=True, kw_only=True)
class EdgeEffect:
    """An attention weight of a head."""

    head: str
    query: str
    key: str
    positions: tuple[int, int]
    weight: float
    estimate: float
    effect: float


@dataclass(frozen=True, kw_only=True)
class DecisionRecord:
    """A decision of one or two sentences, and its causes."""

    sentences: tuple[HeadsRecord, ...]
    d: tuple[float, ...]  # One per sentence
    names: tuple[str, str]  # A and B
    ids: tuple[int, int]
    position: int
    written_at: tuple[int | None, ...]  # Place of it among `pieces_of` each sentence, if it is one
    place: str  # Where the decision falls, in words
    heads: tuple[Part, ...]  # By cause, the strongest first
    layers: tuple[Part, ...]
    maps: tuple[EffectMap, ...] = ()
    tokens: tuple[TokenEffect, ...] = ()
    edges: tuple[EdgeEffect, ...] = ()
    notes: tuple[str, ...] = ()
    rest: dict[str, float] | None = None  # Direct terms of the embedding and biases
    direct_residual: float | None = None  # |Σ direct terms − d|
    integrated_missing: float | None = None
    integrated_steps: int = 0

    @property
    def measured(self) -> list[str]:
        """The effects that any part has."""
        named = {name for part in (*self.heads, *self.layers) for name in part.effects}
        return [name for name in EFFECTS if name in named]

    def __str__(self) -> str:
        a, b = self.names
        return f"{a} or {b}: d = {', '.join(f'{difference:+.3f}' for difference in self.d)}"


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """Settings of the view."""

    method: Annotated[
        tuple[Method, ...],
        Option(
            help="Effect to measure: zero, mean, resample (ablation: a part computes zero, its "
            "mean, or its values at random positions), patch (its values in OTHER), direct "
            "(direct logit attribution), edges (single attention weights), gradients (of "
            "tokens). Repeatable.",
            metavar="METHOD",
            shown_default="all; patch with OTHER",
        ),
    ] = ()
    heads: Selections = ()
    top: Annotated[
        int,
        Option(
            help="Show the N strongest heads, attention weights and tokens.", metavar="N", min=1
        ),
    ] = 10

    def check(self, n_sentences: int) -> None:
        """Checks the number of sentences, before a model is opened."""
        if not 1 <= n_sentences <= 2:
            raise UsageError(
                f"SENTENCE: there are {count_of(n_sentences, 'sentence')}; give one, or two that "
                "are decided differently"
            )
        if "patch" in self.method and n_sentences == 1:
            raise UsageError.of("{method patch}: takes values of another sentence; give OTHER")


@dataclass(frozen=True, kw_only=True)
class DecisionInputs:
    """Sentences, words between which is decided, and texts that values are drawn from."""

    text: TextsArgument = None
    source: SourceOption = None
    target: str | None = setting(
        None,
        "A, the word, piece or label that the model chooses; for a tagger, the word whose label "
        "to look at.",
        shown_default="the model's choice",
        metavar="TEXT",
    )
    foil: str | None = setting(
        None,
        "B, the word, piece or label that the model rejects.",
        shown_default="that of OTHER, else the second most probable",
        metavar="TEXT",
    )
    corpus: str | None = setting(
        None,
        "Sentences from which mean and resample take values; reads the first 64.",
        shown_default="the sentences given",
        role="reads_file",
    )

    def __post_init__(self) -> None:
        for name, word in (("--target", self.target), ("--foil", self.foil)):
            if word is not None and is_blank(word):  # a script's unset variable
                raise UsageError(f"{name}: is empty; name a word, or omit it")


def flips(effect: float, d: float, name: str = "") -> bool:
    """True if a measured change of d makes the model prefer the other token."""
    # A direct term is no change, and an estimate is far off where a softmax turns
    return name not in ("direct", "estimate") and (d + effect > 0) != (d > 0)


def _number(record: DecisionRecord, name: str, part: Part) -> str:
    if name not in part.effects:
        return "-"
    value = part.effects[name]
    d = record.d[-1] if name == "back" else record.d[0]
    sign = "!" if flips(value, d, name) else " "
    return f"{value:+.2f}{sign}"


def _table(record: DecisionRecord, title: str, parts: Sequence[Part], *, attends: bool) -> Table:
    names = [name for name in EFFECTS if any(name in part.effects for part in parts)]
    rows: list[Row] = []
    for part in parts:
        row: Row = [part.id, *(_number(record, name, part) for name in names)]
        if attends:
            seen = ", ".join(f"{piece} {weight:.2f}" for piece, weight in part.attends)
            row.append(text((f"{part.at}: ", "dim"), seen) if seen else "")
        rows.append(row)
    head = ("head" if attends else "part", *names, *(["position: looks at"] if attends else []))
    texts = (0, len(names) + 1) if attends else (0,)
    return Table(title=title, head=head, rows=rows, labels=(), texts=texts)


def pieces_of(sentence: HeadsRecord) -> tuple[str, ...]:
    """The pieces of the text in which something is decided."""
    if sentence.has_both_sides:
        return sentence.target_pieces
    return sentence.source_pieces or sentence.input_pieces


class DecisionView(CorpusView[DecisionRecord]):
    """Shows a decision and its causes."""

    name = "decision"
    title = "A decision and its causes"
    help = """Find what makes a model choose one word over another.

    TEXT is one sentence or two. With two, the decision is where their translations first differ,
    between the words A and B written there. With one, it is where the model is least certain of the
    word A, or at --target. For every head, layer, attention weight and token you see the effect on
    d = logit(A) - logit(B): when it is changed (ablation, patching from the other sentence), or its
    own share of d. A ! marks heads that reverse the decision. For a language model, the decision is
    the next token after TEXT; for a classifier, the label; for a masked model, a gap; for a tagger,
    the label of a word.

    Examples:
        tformer inspect-decision runs/quickstart "The animal was tired." "The street was tired."
        tformer inspect-decision runs/quickstart "The animal was tired." --target fatigué
        tformer inspect-decision runs/ratings "not too terrible" --foil 5 --method zero --top 5
    """
    job = "tformer_cli.plugins.instruments.jobs.decision:inspect_decision"
    Options, Inputs = DecisionOptions, DecisionInputs
    tasks = WITH_OUTPUT
    terms: ClassVar = {
        **{name: (name, f"{says[0].upper()}{says[1:]}") for name, says in EFFECTS.items()},
        "weight": ("weight", "The attention weight before it is knocked out (set to 0)"),
        "effect": ("knocked out", "Change of d without this weight; the others stay as they are"),
        "integrated": ("integrated", "Integrated gradients from average tokens to these"),
        "gradient": ("grad × input", "A first-order estimate of the same change"),
        "alti": ("ALTI+ share", "Share of the token in the state that decides"),
    }

    def read(
        self, request: Request, inputs: DecisionInputs, options: DecisionOptions
    ) -> DecisionRecord:
        corpus = inputs.corpus and request.lines(inputs.corpus)
        # One more than two, so that more are an error
        sentences = list(islice(request.lines(inputs.source, inputs.text), 3))
        options.check(len(sentences))

        inspect_decision: Callable[..., DecisionRecord] = self.load_job()

        opened = request.open()
        with request.steps("explaining") as before_batch:
            return inspect_decision(
                opened, sentences, target=inputs.target, foil=inputs.foil, corpus=corpus,
                settings=options, before_batch=before_batch, seed=request.seed,
            )  # fmt: skip

    def json(self, record: DecisionRecord) -> dict[str, Any]:
        first = record.sentences[0]
        return {
            "schema": SCHEMA,
            "model": vars(first.model),
            "conventions": "d = logit(A) - logit(B); an effect is the change of d, in logits, when "
            "a part is changed; a direct term is a part of d itself",
            "effects": EFFECTS,
            "cause": next((name for name in BY_CAUSE if name in record.measured), None),
            "decision": {
                "a": {"piece": record.names[0], "id": record.ids[0]},
                "b": {"piece": record.names[1], "id": record.ids[1]},
                **to_json(record, "position place"),
            },
            "sentences": [
                {
                    "source": pair.source,
                    "target": pair.target,
                    "d": jsonable(d),
                    "pieces": list(pieces_of(pair)),
                    "at": at,
                }
                for pair, d, at in zip(record.sentences, record.d, record.written_at, strict=True)
            ],
            **to_json(record, "heads layers maps tokens edges rest direct_residual"),
            **to_json(record, "integrated_missing integrated_steps notes"),
        }

    def tab(self, record: DecisionRecord, options: object, *, is_alone: bool) -> Any:
        return pack_for_page(self.json(record))

    def figure_blocks(self, record: DecisionRecord, options: DecisionOptions) -> Iterator[Block]:
        yield from _heading(record)
        yield BLANK
        yield _bars(record)
        yield from _signed_maps(record)

    def blocks(
        self, record: DecisionRecord, options: DecisionOptions, room: Room
    ) -> Iterator[Block]:
        yield from _heading(record)
        for note in record.notes:
            yield text(note, style="dim")
        yield BLANK
        yield _table(record, "heads by effect", record.heads[: options.top], attends=True)
        if record.layers:
            yield BLANK
            yield _table(record, "layers", record.layers, attends=False)
        yield from _legend(record)
        for effects in record.maps:
            # That of the other direction is the same with the sentences exchanged; JSON has it
            if effects.direction != "back" and effects.strongest:
                yield BLANK
                yield from _single_positions(effects)
        if record.edges:
            yield BLANK
            yield _edges(record)
        if record.tokens:
            yield BLANK
            yield from _tokens(record, options.top)


def _legend(record: DecisionRecord) -> Iterator[Block]:
    estimated = "patch" if "patch" in record.measured else "zero"
    meanings = {**EFFECTS, "estimate": f"a first-order estimate of {estimated}"}
    says = "; ".join(f"{name}: {meanings[name]}" for name in record.measured)
    a, b = record.names
    yield text(
        f"number: change of d, below 0 towards {b}, above towards {a}; !: turns the decision. "
        f"{says}",
        style="dim",
    )
    if record.rest is not None:
        rest = ", ".join(f"{name} {value:+.2f}" for name, value in record.rest.items())
        yield text(
            f"other direct terms: {rest}; sum minus d {record.direct_residual:.1e}", style="dim"
        )


def _single_positions(effects: EffectMap) -> Iterator[Block]:
    """A row for each position, for its token needs more room than the names of layers."""
    rows: list[Row] = []
    for place in effects.strongest:
        values = (row[place] for row in effects.values)
        rows.append([effects.columns[place], *("" if v is None else f"{v:+.2f}" for v in values)])
    hidden = len(effects.columns) - len(rows)
    yield Table(title=effects.name, head=("token", *effects.rows), rows=rows)
    if hidden:
        yield text(f"{count_of(hidden, 'other position')}: below {SHOWN} everywhere", style="dim")


def _edges(record: DecisionRecord) -> Table:
    rows: list[Row] = [
        [
            edge.head,
            f"{edge.query}→{edge.key}",
            f"{edge.weight:.2f}",
            f"{edge.estimate:+.2f}",
            f"{edge.effect:+.2f}{'!' if flips(edge.effect, record.d[0]) else ' '}",
        ]
        for edge in record.edges
    ]
    head = ("head", "query→key", "weight", "estimate", "knocked out")
    return Table(title="attention weights", head=head, rows=rows, labels=(1,), texts=(0, 1))


def _tokens(record: DecisionRecord, n_top: int) -> Iterator[Block]:
    strongest = sorted(record.tokens, key=lambda token: -abs(token.integrated))[:n_top]
    rows: list[Row] = [
        [
            token.piece,
            token.side,
            f"{token.integrated:+.2f}",
            f"{token.gradient:+.2f}",
            "-" if token.alti is None else f"{token.alti:.2f}",
        ]
        for token in strongest
    ]
    head = ("token", "side", "integrated", "grad × input", "ALTI+ share")
    yield Table(title="tokens that matter", head=head, rows=rows, texts=(1,))
    missing = f"{100 * (record.integrated_missing or 0.0):.2f} %"
    yield text(
        f"integrated gradients miss {missing} of the change from average tokens to d",
        style="dim",
    )


def _heading(record: DecisionRecord) -> Iterator[Block]:
    a, b = record.names
    names = ["sentence", "other"] if len(record.sentences) > 1 else [""]
    shown = []
    for name, sentence, d in zip(names, record.sentences, record.d, strict=False):
        shown += [(f"{name} {kind}".strip(), words) for kind, words in sentence.texts]
        shown.append((f"{name} d".strip(), f"{d:+.3f}, {a if d > 0 else b}"))
    yield Texts(shown)
    yield text((f"{a} or {b} {record.place}", "bold"), f"   d = logit({a}) − logit({b})")


DRAWN, BAR = 16, 20  # Heads of the figure, as others have almost no effect; columns of a bar


def _bars(record: DecisionRecord) -> Table:
    """A bar for each head, to the left against A, and the tokens that it attends to."""
    a, b = record.names
    heads = record.heads[:DRAWN]
    name = next((method for method in BY_CAUSE if method in record.measured), "")
    largest = max((abs(part.cause) for part in heads), default=0.0) or 1.0
    rows: list[Row] = []
    for part in heads:
        bar = "█" * round(BAR * abs(part.cause) / largest)
        against = part.cause < 0
        rows.append(
            [
                part.id,
                text((bar * against, "blue")),
                text((bar * (not against), "orange")),
                _number(record, name, part),
                text((f"{part.at}: ", "dim"), *(f"{p} {w:.2f} " for p, w in part.attends)),
            ]
        )
    head = ("head", f"towards {b}", f"towards {a}", "effect", "position: looks at")
    return Table(
        title=f"heads by effect: {EFFECTS.get(name, name)}", head=head, rows=rows, texts=(2, 4)
    )


def _signed_maps(record: DecisionRecord) -> Iterator[Block]:
    """Effects by layer and position, in colors up to the largest of all."""
    maps = [effects for effects in record.maps if effects.direction != "back" and effects.strongest]
    values = [[[v or 0.0 for v in row] for row in effects.values] for effects in maps]
    largest = max((abs(v) for rows in values for row in rows for v in row), default=0.0)
    if maps:
        a, b = record.names
        yield BLANK
        says = f"single positions; blue: towards {b}, orange: towards {a}, up to {largest:.2f}"
        yield text((says, "bold"))
    yield SideBySide(
        [
            Map(
                kind=effects.kind,
                title=effects.name,
                labels=(effects.rows, effects.columns),
                values=rows,
                largest=largest,
                is_signed=True,
            )
            for effects, rows in zip(maps, values, strict=True)
        ]
    )


VIEW = DecisionView()
