"""The position vectors of a model and their properties, or what positions add to scores.

For sinusoids (Vaswani et al. 2017, section 3.5) PE(p)·PE(q) = Σ_i cos((p − q)·ω_i) depends only on
the offset p − q, and ‖PE(p)‖² = d/2. Learned vectors need not be like that: how much of their
similarity the offset explains, and how far they are from sinusoids, is measured.
Rotary positions add nothing to scores: their effect depends on queries and keys. So it is
measured, on texts of random tokens, in which no content is at one distance rather than another:
whatever differs by distance is the positions' doing. Scores are those that the softmax is taken
of; as it does not change if all keys of a query have the same number added, each curve has the
mean 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tformer_cli.errors import UsageError
from tformer_cli.inspect.data import npz_bytes, pack_for_page, round6, to_json
from tformer_cli.inspect.view import ModelView, ReportOptions, Subject
from tformer_cli.kinds import reads_names
from tformer_cli.model.config import ROTARY_BASE
from tformer_cli.model.methods import POSITIONS
from tformer_cli.plugins.instruments.position_curves import (
    DimensionCurve,
    PositionSum,
    curve_blocks,
    draw_curves,
    read_curves,
    read_sum,
    sum_blocks,
)
from tformer_cli.settings import Option
from tformer_cli.show.document import BLANK, Block, Facts, Field, Room, text
from tformer_cli.show.figure import draw_blocks
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.show.svg import MARGIN, new_svg, svg_text
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from tformer_cli.heads.names import Inspected, Kind
    from tformer_cli.inspect.record import ModelSummary
    from tformer_cli.model.attention import AttentionTap
    from tformer_cli.model.embedding import PositionedEmbedding

SCHEMA = "tformer.positions/1"
CURVE = "stack dimension formula wavelength values"
MEASURES = "stack squared_norms distance_from_sinusoids cosine_with_sinusoids share_by_offset"
N_POSITIONS = 64  # Positions to read by default
ROWS_SHOWN = 24
NUMBERS, BAR_WIDTH = 37, 40  # Columns of the numbers of an offset, and of its bar at most


class OffsetSimilarity(NamedTuple):
    """PE(p)·PE(p + k) over all positions p, for one offset k; of sinusoids all three are equal."""

    offset: int
    mean: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class PositionTable:
    """The first position vectors of one stack."""

    stack: str  # "encoder", "decoder", or "both" where they are the same
    table: Tensor  # (P, D) float64
    is_formula: bool = True  # True if the vectors follow a formula, that of sinusoids
    base: float = 10_000.0

    @property
    def whose(self) -> str:
        return "encoder and decoder" if self.stack == "both" else self.stack

    @cached_property
    def similarity(self) -> Tensor:
        """(P, P) PE·PEᵀ."""
        return self.table @ self.table.T

    @cached_property
    def by_offset(self) -> tuple[OffsetSimilarity, ...]:
        diagonals = [self.similarity.diagonal(offset) for offset in range(len(self.table))]
        return tuple(
            OffsetSimilarity(offset, diag.mean().item(), diag.min().item(), diag.max().item())
            for offset, diag in enumerate(diagonals)
        )

    @property
    def squared_norms(self) -> Tensor:
        """(P) ‖PE(p)‖²."""
        return self.similarity.diagonal()

    @property
    def distance_from_sinusoids(self) -> float:
        """‖PE − sinusoids‖ / ‖sinusoids‖ (Frobenius); about 1.4 for unrelated ones as large."""
        expected = self._sinusoids
        return float((self.table - expected).norm() / expected.norm())

    @property
    def cosine_with_sinusoids(self) -> float:
        """The cosine between both tables as vectors, which does not mind their scale."""
        expected = self._sinusoids
        norms = float(self.table.norm() * expected.norm())
        return float((self.table * expected).sum()) / norms if norms else 0.0

    @property
    def share_by_offset(self) -> float:
        """Share of the variance of PE·PEᵀ that the offset explains; 1 for sinusoids."""
        import torch

        n = len(self.table)
        means = torch.tensor([row.mean for row in self.by_offset], dtype=torch.float64)
        offsets = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
        total = (self.similarity - self.similarity.mean()).square().sum().item()
        left = (self.similarity - means[offsets]).square().sum().item()
        return 1.0 - left / total if total else 1.0

    @property
    def _sinusoids(self) -> Tensor:
        from tformer_cli.model.positions import sinusoids

        # An odd width, which learned positions may have, leaves the last cosine out.
        n_positions, width = self.table.shape
        return sinusoids(n_positions, width + width % 2, self.base)[:, :width].double()


@dataclass(frozen=True, kw_only=True)
class PositionsRecord:
    """The position vectors of a model."""

    model: ModelSummary
    kind: str
    tables: tuple[PositionTable, ...]  # For both stacks, or each; none without vectors
    biases: tuple[PositionBiases, ...] = ()
    """Terms that positions add to the scores of each stack, if any."""
    scores: tuple[PositionBiases, ...] = ()
    """Mean scores of each layer by offset, where positions turn queries and keys."""
    curves: tuple[DimensionCurve, ...] = ()
    """Chosen dimensions of the tables."""
    sum: PositionSum | None = None
    """These dimensions, added to a text."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.model.name}, {self.kind}>"


def read_positions(model: Inspected, summary: ModelSummary, n_positions: int) -> PositionsRecord:
    tables = [
        PositionTable(
            stack,
            rows.detach().double(),
            is_formula=POSITIONS[model.config.positions].is_formula,
            base=model.config.rotary_base if part.positions.turns else ROTARY_BASE,
        )
        for stack, part in stack_inputs(model)
        if (rows := part.positions.vectors(n_positions)) is not None
    ]
    if len(tables) > 1 and tables[0].is_formula:
        tables = [replace(tables[0], stack="both")]
    return PositionsRecord(
        model=summary,
        kind=model.config.positions,
        tables=tuple(tables),
        biases=read_biases(model, n_positions),
        scores=read_scores(model, n_positions),
    )


def facts_of(table: PositionTable) -> list[tuple[str, str]]:
    norms, width = table.squared_norms, table.table.shape[1]
    low, high, mean = norms.min().item(), norms.max().item(), norms.mean().item()
    if table.is_formula:
        spread = max(row.largest - row.smallest for row in table.by_offset)
        even = f"{mean:.6g}, the same everywhere to {high - low:.1e}; d/2 = {width / 2:.6g}"
        alone = f"depends only on the offset k, to {spread:.1e}"
        return [
            ("squared norm", even),
            ("PE(p)·PE(p+k)", alone),
            ("from the formula", f"{table.distance_from_sinusoids:.1e} (relative distance)"),
        ]
    uneven = f"{mean:.4g} on average, {low:.4g} to {high:.4g}; sinusoids have d/2 = {width / 2:.6g}"
    share = f"the offset k explains {100 * table.share_by_offset:.1f} % of its variance"
    far = f"relative distance {table.distance_from_sinusoids:.3f}, cosine "
    return [
        ("squared norm", uneven),
        ("PE(p)·PE(p+k)", f"{share} (sinusoids: 100 %)"),
        ("from sinusoids", f"{far}{table.cosine_with_sinusoids:.3f}"),
    ]


def render_positions_npz(record: PositionsRecord) -> bytes:
    """Renders tables and similarities, `STACK.table` (P, D) and `STACK.similarity` (P, P).

    Of biases there are `STACK.bias` (H, N) and `STACK.offsets` (N); of mean scores `STACK.L.score`
    and `STACK.L.offsets` of each layer.
    """
    import numpy as np

    arrays = {}
    for table in record.tables:
        arrays[f"{table.stack}.table"] = table.table.float().numpy()
        arrays[f"{table.stack}.similarity"] = table.similarity.float().numpy()
    named = [(biases.stack, "bias", biases) for biases in record.biases]
    named += [(f"{biases.stack}.{biases.layer}", "score", biases) for biases in record.scores]
    for whose, what, biases in named:
        arrays[f"{whose}.{what}"] = biases.biases.float().numpy()
        arrays[f"{whose}.offsets"] = np.array(biases.offsets)
    return npz_bytes(arrays)


def _from_least(values: Tensor) -> tuple[Tensor, str]:
    """Maps numbers to 0 … 1, the least to 0; tells the least and the largest."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low).clamp(min=1e-30), f"light {low:.3g}, dark {high:.3g}"


def shares(values: Tensor) -> Tensor:
    """Maps numbers to 0 … 1, with 0 in the middle."""
    largest = max(values.abs().max().item(), 1e-30)
    return (values / largest + 1) / 2


def _name(kind: str, whose: str) -> str:
    return f"{kind.capitalize()} positions, {whose}"


def _table_blocks(record: PositionsRecord, table: PositionTable, room: Room) -> Iterator[Block]:
    n_positions, width = table.table.shape
    yield text((f"{record.model.name}  {record.kind} positions, {table.whose}", "bold"))
    yield text(f"{n_positions} positions × {width} dimensions")
    yield Facts([("", *fact) for fact in facts_of(table)])
    yield BLANK
    # Where not all dimensions fit, every n-th is shown; with an even n these are only sines, a
    # smooth picture.
    stride = -(-width // max(room.width - 6, 1))
    chosen = "every dimension" if stride == 1 else f"one dimension in {stride}"
    yield text(f"position, by {chosen}; light -, dark +", style="dim")
    yield Field("cross", shares(table.table)[:ROWS_SHOWN, ::stride].tolist())
    yield BLANK
    yield text(("similarity PE(p)·PE(p+k) by offset k: mean, smallest, largest", "bold"))
    largest = max(abs(row.mean) for row in table.by_offset)
    longest = max(0, min(BAR_WIDTH, room.width - NUMBERS))
    for row in table.by_offset:
        if row.offset <= 8 or not row.offset & (row.offset - 1):
            bar = "█" * round(longest * max(row.mean, 0.0) / largest)
            numbers = f"{row.mean:9.3f} {row.smallest:9.3f} {row.largest:9.3f}"
            yield text(f"{row.offset:5} {numbers}  {bar}".rstrip())


@dataclass(frozen=True, kw_only=True)
class PositionsOptions:
    """Settings of the view."""

    positions: Annotated[
        int | None,
        Option(help="Number of positions, from the first.", metavar="N", min=2, shown_default="64"),
    ] = None
    dimension: Annotated[
        tuple[int, ...],
        Option(
            help="Draw this dimension of the vectors, from 0, as a curve. Repeatable.",
            metavar="D",
            min=0,
            shown_default="none",
        ),
    ] = ()
    sentence: Annotated[
        str | None,
        Option(
            help="Show what each --dimension adds to the embeddings of this sentence.",
            names=("--text",),
            metavar="TEXT",
            shown_default="none",
        ),
    ] = None


class PositionsView(ModelView[PositionsRecord]):
    """Shows the position vectors and how similar they are."""

    name = "positions"
    title = "Positions"
    help = """Show the position vectors and how similar they are.

    Similarity is shown by offset. For sinusoids, it depends only on the offset, and the squared
    norm is d/2; for learned or stored vectors, you see how far they are from that. For rotary
    positions, each head's mean score at each offset is measured on random tokens. With --dimension,
    you see curves: the sine and cosine waves of the paper.

    Examples:
        tformer inspect-positions runs/quickstart
        tformer inspect-positions runs/quickstart --dimension 4 --dimension 5 --text "It is old."
        tformer inspect-positions runs/quickstart --positions 32 -o positions.html
    """
    Options = PositionsOptions
    formats = ("text", "json", "npz", *FIGURES, "html")

    def read(self, subject: Subject, options: PositionsOptions) -> PositionsRecord:
        limit = subject.model.config.n_positions
        if options.positions is not None and options.positions > limit:
            raise UsageError.of(
                "{positions}: the model has {}, but {} were asked for", limit, options.positions
            )
        if options.sentence is not None and not options.dimension:
            raise UsageError.of("{text}: shows chosen dimensions; add {dimension}")
        n_positions = options.positions or min(N_POSITIONS, limit)
        record = read_positions(subject.model, subject.summary, n_positions)
        if not options.dimension:
            return record
        tables = [(table.stack, table.table, table.base) for table in record.tables]
        curves = read_curves(subject.model.config, tables, options.dimension)
        words, first = options.sentence, next(stack_inputs(subject.model))
        summed = None if words is None else read_sum(subject, words, options.dimension, first)
        return replace(record, curves=curves, sum=summed)

    def report(self, subject: Subject, options: ReportOptions) -> PositionsRecord:
        return self.read(subject, PositionsOptions(positions=options.n_positions))

    def json(self, record: PositionsRecord) -> dict[str, Any]:
        tables = [
            {
                **to_json(table, MEASURES),
                "by_offset": [
                    {name: round6(value) for name, value in row._asdict().items()}
                    for row in table.by_offset
                ],
                **to_json(table, "table"),
            }
            for table in record.tables
        ]
        return {
            "schema": SCHEMA,
            "model": vars(record.model),
            "kind": record.kind,
            "tables": tables,
            **{
                name: [biases.data for biases in of_stacks]
                for name, of_stacks in (("biases", record.biases), ("scores", record.scores))
                if of_stacks
            },
            **(
                {"curves": [to_json(curve, CURVE) for curve in record.curves]}
                if record.curves
                else {}
            ),
            **({} if record.sum is None else {"sum": record.sum.data}),
        }

    def blocks(
        self, record: PositionsRecord, options: PositionsOptions, room: Room
    ) -> Iterator[Block]:
        name = record.model.name
        if not record.tables and not record.biases:
            yield text((f"{name}  has no position vectors", "bold"))
        for biases in record.biases:
            title = f"{name}  {record.kind} positions, {biases.name}"
            yield from bias_blocks(title, biases, room)
        for table in record.tables:
            yield from _table_blocks(record, table, room)
        yield from curve_blocks(record.curves, room)
        if record.sum is not None:
            yield from sum_blocks(record.sum, room)
        for scores in record.scores:
            yield BLANK
            yield from bias_blocks(f"scores by offset, {scores.name}", scores, room)

    def tab(
        self, record: PositionsRecord, options: PositionsOptions, *, is_alone: bool
    ) -> dict[str, Any]:
        data: dict[str, Any] = self.json(record)
        # few numbers, which the page shows as they are
        exact = {name: data.pop(name) for name in ("curves", "sum") if name in data}
        for curve, of_curve in zip(record.curves, exact.get("curves", ()), strict=True):
            del of_curve["values"]  # the table has them
            of_curve["title"] = curve.title
        facts = [facts_of(table) for table in record.tables]
        packed: dict[str, Any] = pack_for_page(data, bits=8)
        return packed | {"facts": facts} | exact

    def figure(self, record: PositionsRecord, options: Any = None) -> str:
        """Draws the curves below the model's name, above the other blocks."""
        if not record.curves:
            return super().figure(record, options)
        root = new_svg(self.title)
        name, *blocks = self.figure_blocks(record, options)
        _, y = draw_blocks(root, [name], (MARGIN, MARGIN))
        y = draw_curves(root, record.curves, record.sum, y + MARGIN / 2)
        right, y = draw_blocks(root, blocks, (MARGIN, y))
        return svg_text(root, right + MARGIN, y + MARGIN)

    def figure_blocks(self, record: PositionsRecord, options: PositionsOptions) -> Iterator[Block]:
        yield text((record.model.name, "bold"))
        for table in record.tables:
            similarity, ends = _from_least(table.similarity)
            yield BLANK
            yield text((_name(record.kind, table.whose), "bold"))
            yield Facts(facts_of(table))
            yield text("row: position, column: dimension; light −, dark +", style="dim")
            yield Field("cross", shares(table.table).tolist())
            yield text(f"PE·PEᵀ, row and column: position; {ends}", style="dim")
            yield Field("cross", similarity.tolist())
        for biases in (*record.biases, *record.scores):
            spread, ends = _from_least(biases.biases)
            first, *_, last = biases.offsets
            yield BLANK
            yield text((_name(record.kind, biases.name), "bold"))
            where = f"row: head, column: offset j − i from {first} to {last}; {ends}"
            yield text(f"{biases.says}; {where}", style="dim")
            yield Field("cross", spread.tolist())

    def file(self, record: PositionsRecord, output_format: str, options: Any = None) -> bytes | str:
        is_npz = output_format == "npz"
        return (
            render_positions_npz(record) if is_npz else super().file(record, output_format, options)
        )


VIEW = PositionsView()


COLUMN, OFFSET_COLUMN = 9, 7  # Characters of a head's number and of an offset


@dataclass(frozen=True)
class PositionBiases:
    """The biases of one stack, which all its layers have, or mean scores of one layer."""

    stack: str  # "encoder" or "decoder"
    offsets: tuple[int, ...]  # j − i of key j from query i; a decoder has none after it
    biases: Tensor  # (H, offsets) float64, added to scores, or the mean scores themselves
    layer: int | None = None  # Whose scores were measured; None of biases

    @property
    def chosen_offsets(self) -> list[int]:
        """Places of the offsets 0 and ± powers of two."""
        return [
            place
            for place, offset in enumerate(self.offsets)
            if not abs(offset) & (abs(offset) - 1) or not offset
        ]

    @property
    def name(self) -> str:
        return self.stack if self.layer is None else f"{self.stack}, layer {self.layer}"

    @property
    def says(self) -> str:
        if self.layer is None:
            return "added to the score of key j for query i, in all layers"
        return "mean score of key j for query i on random tokens, minus its mean over offsets"

    @property
    def data(self) -> dict[str, Any]:
        whose = "stack" if self.layer is None else "stack layer"
        return to_json(self, f"{whose} offsets heads=biases")


def stack_inputs(model: Inspected) -> Iterator[tuple[str, PositionedEmbedding]]:
    """Yields the name of each stack that a model has, and what embeds its tokens."""
    for stack in ("encoder", "decoder"):
        if (stack_input := getattr(model, f"{stack}_input", None)) is not None:
            yield stack, stack_input


def read_biases(model: Inspected, n_positions: int) -> tuple[PositionBiases, ...]:
    import torch

    stack_biases = []
    for stack, stack_input in stack_inputs(model):
        if not stack_input.positions.biases:
            continue
        # the query in the middle: all offsets are before or after it
        last = n_positions - 1
        keys = torch.arange(n_positions if stack == "decoder" else 2 * n_positions - 1)
        with torch.inference_mode():
            biases = stack_input.positions.bias(torch.tensor([last]), keys)[:, 0].cpu().double()
        stack_biases.append(PositionBiases(stack, tuple((keys - last).tolist()), biases))
    return tuple(stack_biases)


def bias_blocks(title: str, biases: PositionBiases, room: Room) -> Iterator[Block]:
    n_heads = len(biases.biases)
    n_shown = min(n_heads, max(1, (room.width - OFFSET_COLUMN) // COLUMN))
    heads = " " * OFFSET_COLUMN + "".join(f"{head:{COLUMN}}" for head in range(n_shown))
    yield text((title, "bold"))
    yield text(f"{biases.says}; row: offset j − i, column: head")
    yield text((heads, "bold"))
    for place in biases.chosen_offsets:
        numbers = "".join(f"{value:{COLUMN}.3f}" for value in biases.biases[:n_shown, place])
        yield text(f"{biases.offsets[place]:{OFFSET_COLUMN}}{numbers}")
    if n_shown < n_heads:
        yield text(f"{count_of(n_heads - n_shown, 'more head')}: --format json")


N_TEXTS = 8  # Texts of random tokens
N_QUERIES = 16  # Queries of each text, which see all offsets
SEED = 1  # Of the tokens
KINDS: dict[str, Kind] = {"encoder": "enc", "decoder": "dec"}


def read_scores(model: Inspected, n_positions: int) -> tuple[PositionBiases, ...]:
    import torch

    from tformer_cli.inspect.capture.forced import forced_pass, tapped_attentions
    from tformer_cli.inspect.capture.maps import ids_read
    from tformer_cli.model.base import N_SPECIAL_TOKENS

    config = model.config
    turned = [stack for stack, stack_input in stack_inputs(model) if stack_input.positions.turns]
    room = config.max_positions - 1  # for the end or the begin of sentence
    last = min(n_positions - 1, (room - 1) // 2)
    if not turned or reads_names(config) or last < 1:
        return ()
    length = min(room, 2 * last + N_QUERIES)
    drawn = torch.Generator().manual_seed(SEED)
    sums: dict[tuple[Kind, int], Tensor] = {}
    for _ in range(N_TEXTS):
        source, target = (
            torch.randint(N_SPECIAL_TOKENS, size, (length,), generator=drawn).tolist()
            for size in (config.source_vocab_size or model.vocab_size, model.vocab_size)
        )
        kinds = [KINDS[stack] for stack in turned]
        with torch.inference_mode(), tapped_attentions(model, _scores, kinds) as tapped:
            forced_pass(model, *ids_read(config, source, target))
        for place, scores in tapped.items():
            is_causal = place[0] == "dec"
            first = int(is_causal and config.target_bos)  # <s> is no random token
            seen = scores[:, first:, first:]
            means = _by_offset(seen, last, length, is_causal=is_causal)
            sums[place] = sums.get(place, torch.zeros_like(means)) + means
    offset_scores = []
    for (kind, layer), total in sums.items():
        stack = "encoder" if kind == "enc" else "decoder"
        offsets = range(-last, 1 if kind == "dec" else last + 1)
        means = total / N_TEXTS
        centered = means - means.mean(dim=1, keepdim=True)
        offset_scores.append(PositionBiases(stack, tuple(offsets), centered, layer=layer))
    return tuple(offset_scores)


def _scores(tap: AttentionTap) -> Tensor:
    """Computes (H, Q, K) the scores of a call for one text that the softmax is taken of."""
    query, key = tap.query[0].cpu().double(), tap.key[0].cpu().double()
    scores = tap.scale * query @ key.transpose(-2, -1)
    return scores if tap.bias is None else scores + tap.bias[0].cpu().double()


def _by_offset(scores: Tensor, last: int, length: int, *, is_causal: bool) -> Tensor:
    """Averages scores (H, Q, K) at each offset over the queries that see all: (H, offsets)."""
    import torch

    stop = length if is_causal else length - last
    behind = 1 if is_causal else last + 1
    rows = [scores[:, q, q - last : q + behind] for q in range(last, stop)]
    return torch.stack(rows).mean(dim=0)
