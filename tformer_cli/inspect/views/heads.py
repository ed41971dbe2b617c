"""The heads of a sentence: all their roles, which words go together, and their maps.

As safetensors and npz there are `enc.L` (H, S, S), `dec.L` (H, T, T) and `cross.L` (H, T, S),
float32. Where heads were selected, H counts the selected ones of the layer, and the metadata's
`heads` names them. Maps of whole layers (see the metadata's `weighting`) have no H,
and there is no `heads`.
"""

from __future__ import annotations

import io
import json
import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree.ElementTree import Element, SubElement

from tformer_cli.artifacts.config_file import TASKS
from tformer_cli.errors import TformerError, UsageError
from tformer_cli.heads.names import KINDS, by_layer
from tformer_cli.heads.roles import role_grid
from tformer_cli.inspect.data import jsonable, npz_bytes, round6
from tformer_cli.inspect.view import CaptureOptions, ReportOptions, SentenceView, Subject, describe
from tformer_cli.inspect.weighting import WeightingName  # noqa: TC001 - at run time
from tformer_cli.settings import Option, dataclass
from tformer_cli.show.document import BLANK, Block, Label, Map, Room, Span, Text, Texts, text
from tformer_cli.show.figure import CHARACTER, break_lines
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.show.palette import hex_color
from tformer_cli.show.svg import (
    MARGIN,
    display_width,
    draw_labels,
    draw_map,
    draw_scale,
    draw_text,
    new_svg,
    room_of_labels,
    svg_text,
)
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.heads.names import HeadId, Kind
    from tformer_cli.inspect.alignment import AlignedWords
    from tformer_cli.inspect.record import HeadsRecord

MAPS_SHOWN = 12  # Most heads whose maps a terminal shows; of more only the first is shown
LINKS_SHOWN = 24  # Most links that are listed
NOTE = "attention weights are not importance: see --weights norm, --weights alti, inspect-ablate"


def _heading(record: HeadsRecord) -> Iterator[Block]:
    model, maps = record.model, record.maps
    facts = f"  {model.n_encoder_layers}+{model.n_decoder_layers} layers × "
    facts += count_of(model.n_heads, "head")
    if model.sharing:
        facts += f" ({model.sharing})"
    if maps is not None:
        of_search = " of the search" if record.mode == "live" else ""
        facts += f"  maps{of_search} exact" + (f" to {maps.residual:.1e}" if maps.residual else "")
        if model.n_decoder_layers and not maps.dec:
            facts += "  no decoder self-attention (recurrent)"
        if maps.segment:
            facts += f"  segments of {maps.segment} tokens, earlier ones are memory"
    if record.score is not None:
        facts += f"  score {record.score:.3f}"
    yield text((model.name, "bold"), facts)
    yield Texts(record.texts)
    weighting = record.weighting
    if weighting.name != "alpha":
        measure = f"{weighting.name}: {weighting.meaning} ({weighting.source})"
        if not weighting.is_share:
            measure += f"; shaded from 0 to the largest, {record.largest:.4g}"
        yield text(measure, style="dim")


def _alignment(aligned: AlignedWords, room: Room) -> Text:
    spans: list[Span] = [("words aligned by  ", "dim"), (aligned.choice.description, "bold")]
    arrow = "->" if room.is_ascii else "→"
    pairs = aligned.by_target
    for pair in pairs[:LINKS_SHOWN]:
        target, source = map(Label, pair)
        spans += ["  ", target, arrow, source]
    if len(pairs) > LINKS_SHOWN:
        spans.append((f"  and {len(pairs) - LINKS_SHOWN} more", "dim"))
    return text(*spans)


def head_map(record: HeadsRecord, head: HeadId, taller: str = "") -> Iterator[Block]:
    """One head: rows are queries, columns keys."""
    is_alone = TASKS[record.model.task].head is not None  # an encoder has no source
    read = "patch" if record.is_image else "token" if is_alone else "source token"
    rows = read if head.kind == "enc" else "token predicted"
    keys = "token read" if head.kind == "dec" else read
    confidence = record.metrics[head].get("confidence")
    known = "" if confidence is None else f"   confidence {confidence:.2f}"
    weighting = record.weighting  # of attention weights the grid of roles names the kinds
    kind = "" if weighting.name == "alpha" else f"{weighting.kind_names[head.kind]}; "
    yield text((str(head), "bold"), f"  {kind}row: {rows}, column: {keys}{known}")
    yield Map(
        kind=head.kind,
        labels=(record.row_labels(head.kind), record.column_labels(head.kind)),
        values=record.shades(head).tolist(),
        taller=taller,
    )


def record_blocks(
    record: HeadsRecord, maps: Sequence[HeadId], room: Room, *, fits_screen: bool = False
) -> Iterator[Block]:
    yield from _heading(record)
    if not record.heads:
        if record.maps is not None:
            yield text("--heads: no head meets the conditions", style="dim")
        return
    roles = {head: role for head in record.heads if (role := record.role(head)) is not None}
    if roles:
        yield BLANK
        yield from role_grid(roles, room, record.rare.reason)
    is_alpha = record.weighting.name == "alpha"
    if is_alpha and record.aligned is not None and record.aligned.links:
        yield _alignment(record.aligned, room)
    fits_screen = fits_screen and len(maps) == 1
    for head in maps:
        yield BLANK
        yield from head_map(record, head, f"--heads {head}" if fits_screen else "")
    if is_alpha:
        yield text(NOTE, style="dim")


def check_residual(residual: float, limit: float | None, where: str) -> None:
    if limit is not None and not residual <= limit:
        raise TformerError(
            f"{where}: residual {residual:.2g} exceeds --verify {limit:.2g}; the maps do not "
            "reproduce the model's output that closely"
        )


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(CaptureOptions):
    """Settings of the view."""

    heads: Annotated[
        tuple[str, ...],
        Option(
            help="Heads to show: enc.0.3, cross.5.0-3, cross.last, dec.*.*, '!enc.0'. The syntax "
            "is KIND[.LAYER[.HEAD]], separated by commas. KIND: enc, dec, cross, self or *. LAYER "
            "and HEAD: n, a-b, a-, last, ^k, {list} or *. ! excludes. Metrics select too: "
            "'@prev>0.8', 'cross@entropy<1', '@role=sink', top:8@confidence. Repeatable.",
            metavar="HEADS",
            shown_default="all heads",
        ),
    ] = ()
    weights: Annotated[
        WeightingName | None,
        Option(
            help="What the maps show; also adds them to jsonl. alpha (or no value): attention "
            "weights. norm: norms of the weighted values (Kobayashi et al. 2020). Per layer "
            "instead of per head: rollout (attention rollout) or alti (ALTI+ contributions).",
            shown_default="alpha, not in jsonl",
        ),
    ] = None
    verify: Annotated[
        float | None,
        Option(
            help="Exit with status 1 if the maps do not reproduce the model's output within X.",
            metavar="X",
            min=0.0,
            shown_default="no check",
        ),
    ] = None
    for_page: bool = False  # Capture words, queries and keys and the search, too


class HeadsView(SentenceView["HeadsRecord"]):
    """Shows where the heads look in a sentence."""

    name = "heads"
    title = "Attention heads"
    needs_model = False
    Options = HeadsOptions
    formats = ("text", "jsonl", "safetensors", "npz", "html", *FIGURES)

    def read(self, subject: Subject, sentence: HeadsRecord, options: HeadsOptions) -> HeadsRecord:
        if sentence.maps is not None:
            check_residual(sentence.maps.residual, options.verify, f"line {sentence.index + 1}")
        return sentence

    def report(self, subject: Subject, sentence: HeadsRecord, options: ReportOptions) -> None:
        """Reads nothing: every report has the maps."""

    def json(self, record: HeadsRecord, *, with_weights: bool = False) -> dict[str, Any]:
        heads = [_head_data(record, head, with_weights) for head in record.heads]
        return describe(record) | {"heads": heads}

    def lines(self, record: HeadsRecord, options: HeadsOptions) -> Iterable[dict[str, Any]]:
        return [self.json(record, with_weights=options.weights is not None)]

    def blocks(self, record: HeadsRecord, options: HeadsOptions, room: Room) -> Iterator[Block]:
        """Shows the maps of the requested heads, or of the first one.

        On a screen, a single map that was not requested leaves room for the prompt.
        """
        maps: Sequence[HeadId] = record.heads
        if record.heads and not (options.heads and len(record.heads) <= MAPS_SHOWN):
            maps = [record.first_head()]
        fits_screen = room.is_screen and not options.heads
        return record_blocks(record, maps, room, fits_screen=fits_screen)

    def page(self, records: Sequence[HeadsRecord], options: HeadsOptions) -> str:
        from tformer_cli.inspect.pages import render_html

        return render_html(records)

    def file(self, record: HeadsRecord, output_format: str, options: Any = None) -> bytes | str:
        if record.maps is not None and not record.heads:
            raise UsageError(
                f"--heads: no head meets the conditions; select others for --format {output_format}"
            )
        if output_format in ("npz", "safetensors"):
            return (render_npz if output_format == "npz" else render_safetensors)(record)
        return super().file(record, output_format, options)

    def figure(self, record: HeadsRecord, options: Any = None) -> str:
        return render_svg(record)


def _head_data(record: HeadsRecord, head: HeadId, with_weights: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        **head.data,
        "residual": round6(record.captured.residuals[head]),
        "role": record.role(head),
        "metrics": jsonable(record.metrics[head]),
    }
    if with_weights:
        data["weights"] = jsonable(record.captured.weights(head))
    return data


VIEW = HeadsView()


LABELLED_PANELS = 16
"""Up to this many heads are each labeled with their tokens; more are drawn as thumbnails,
which share the labels at the edges of their kind."""
THUMBNAIL, LEAST_CELL = 96.0, 6.0  # Size of a thumbnail, unless its tokens could not be read
_GAP, _TITLE = 26.0, 20.0
NARROWEST, WIDEST = 640.0, 1000.0  # Pixels of a heading's lines; that four panels may take


def render_svg(record: HeadsRecord) -> str:
    root = new_svg(f"Attention heads: {record.source}", " ".join(_notes(record)))
    width, y = _draw_heading(root, record)
    for kind in KINDS:
        heads = [head for head in record.heads if head.kind == kind]
        if heads:
            right, y = _draw_kind(root, record, kind, heads, y)
            width = max(width, right)
    return svg_text(root, width + MARGIN, y)


def _draw_heading(root: Element, record: HeadsRecord) -> tuple[float, float]:
    """Draws the texts and the notes; returns the right and the lower edge."""
    right, y = NARROWEST, MARGIN
    for words, size, fill in (
        (record.source, 15.0, "#16181d"),
        (record.target, 15.0, "#16181d"),
        *((sentence, 10.0, "#5c6370") for sentence in _notes(record)),
    ):
        for runs in break_lines(words, int((NARROWEST - MARGIN) / (size * CHARACTER))):
            line = "".join(part for part, _ in runs)
            y += size + 5
            draw_text(root, line, MARGIN, y, size, fill=fill)
            # What has no space, such as Chinese, cannot be broken
            right = max(right, MARGIN + display_width(line.rstrip()) * size * CHARACTER)
    return right, y + 10


def _notes(record: HeadsRecord) -> list[str]:
    weighting = record.weighting
    sentences = [f"{weighting.name}: {weighting.meaning} ({weighting.source})."]
    if not weighting.is_share:
        sentences.append(f"Shades run from 0 to the largest number, {record.largest:.4g}.")
    return [*sentences, *weighting.conventions.replace(". ", ".\n").split("\n")]


def _draw_kind(
    root: Element, record: HeadsRecord, kind: Kind, heads: list[HeadId], y: float
) -> tuple[float, float]:
    """Draws the heads of a kind; returns the right and the lower edge."""
    labels = rows, columns = record.row_labels(kind), record.column_labels(kind)
    longest = max(len(rows), len(columns))
    cell = min(22.0, max(7.0, 420 / longest))
    # of many heads only the panels at the left and at the top have labels, outside of them
    shares_labels = len(record.heads) > LABELLED_PANELS
    if shares_labels:
        cell = max(LEAST_CELL, THUMBNAIL / longest)
    font = min(12.0, cell * 0.9)
    beside, above = room_of_labels(labels, font)
    y += 20
    name, color_of = record.weighting.kind_names[kind].capitalize(), partial(hex_color, kind)
    draw_text(root, name, MARGIN, y, 13.0, weight="600")
    largest = "1" if record.weighting.is_share else f"{record.largest:.4g}"
    draw_scale(root, color_of, (MARGIN + len(name) * 8.5 + 12, y - 9), ("0", largest))
    left, y = MARGIN, y + 8
    if shares_labels:
        left, y, beside, above = left + beside, y + above, 0.0, 0.0
    width, height = beside + len(columns) * cell, _TITLE + above + len(rows) * cell
    n_columns = max(sum(h.layer == head.layer for h in heads) for head in heads)
    if not shares_labels:
        n_columns = _even_columns(len(heads), 4 if 4 * (width + _GAP) <= WIDEST else 3)
    for place, head in enumerate(heads):
        row, column = divmod(place, n_columns)
        x, top = left + column * (width + _GAP), y + row * (height + _GAP / 2)
        if shares_labels and column == 0:
            draw_labels(root, (rows, ()), (x, top + _TITLE), cell, font)
        if shares_labels and row == 0:
            draw_labels(root, ((), columns), (x, top), cell, font)
        panel = SubElement(root, "g", {"role": "img", "aria-label": str(head)})
        corner = x + beside, top + _TITLE + above
        if not shares_labels:
            draw_labels(panel, labels, corner, cell, font)
        # thumbnails have their name just above the map, labeled maps above the labels
        draw_text(panel, str(head), corner[0], top + 13, 11.0, weight="600")
        draw_map(panel, record.shades(head).tolist(), color_of, corner, (cell, cell))
    n_lines = math.ceil(len(heads) / n_columns)
    right = left + min(len(heads), n_columns) * (width + _GAP)
    return right, y + n_lines * (height + _GAP / 2) + 10


def _even_columns(n_panels: int, most: int) -> int:
    """Returns the columns that make as few rows as possible, and these alike: of 4, 4 or 2."""
    return math.ceil(n_panels / math.ceil(n_panels / most))


def render_safetensors(record: HeadsRecord) -> bytes:
    from tformer_cli.artifacts.weights_file import write_arrays

    file = io.BytesIO()
    write_arrays(file, weight_arrays(record), metadata_of(record))
    return file.getvalue()


def render_npz(record: HeadsRecord) -> bytes:
    """Renders a sentence as an npz file; its array `metadata` holds the metadata as JSON text."""
    import numpy as np

    metadata = np.array(json.dumps(metadata_of(record), ensure_ascii=False))
    return npz_bytes({"metadata": metadata, **weight_arrays(record)})


def weight_arrays(record: HeadsRecord) -> dict[str, NDArray[np.float32]]:
    is_of_layers = record.weighting.is_of_layers
    return {
        f"{kind}.{layer}": record.captured.layers(kind)[layer][0 if is_of_layers else heads]
        for (kind, layer), heads in by_layer(record.heads).items()
    }


def metadata_of(record: HeadsRecord) -> dict[str, str]:
    """The metadata: the entries of the JSON Lines, each as JSON text, and the list of heads."""
    data = describe(record)
    if not record.weighting.is_of_layers:
        named = by_layer(record.heads).items()
        data["heads"] = {f"{kind}.{layer}": heads for (kind, layer), heads in named}
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in data.items()
    }
