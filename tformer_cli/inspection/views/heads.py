"""The heads of a sentence: all their roles, which words go together, and their maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Group
from rich.text import Text

from tformer_cli.errors import TformerError, UsageError
from tformer_cli.inspection.figures.heat_map import heat_map
from tformer_cli.inspection.figures.role_grid import role_grid
from tformer_cli.inspection.json_lines import describe, plain, rounded
from tformer_cli.inspection.view import CaptureOptions, ReportOptions, SentenceView, Subject
from tformer_cli.inspection.weighting.weighting import WeightingName  # noqa: TC001 - at run time
from tformer_cli.settings import Option
from tformer_cli.show.terminal import is_ascii_only, isolated, sentence_lines, shown
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, RenderableType

    from tformer_cli.inspection.alignment.chosen import AlignedWords
    from tformer_cli.inspection.capture.heads import HeadId
    from tformer_cli.inspection.record import HeadsRecord

MAPS_SHOWN = 12
"""Most heads whose maps a terminal shows; of more only the first is shown."""
FEWEST_ROWS = 8
"""Rows of a map that are shown on any screen."""
LINKS_SHOWN = 24
"""Most links that are listed."""
NOTE = "attention weights are not importance: see --weights norm, --weights alti, inspect-ablate"


def show_record(
    console: Console,
    record: HeadsRecord,
    maps: Sequence[HeadId],
    *,
    fits_screen: bool = False,
) -> None:
    """Prints a sentence, the roles of its heads, its word alignment, and the maps of some heads.

    Args:
        console: where to.
        record: the sentence.
        maps: the heads whose maps are drawn.
        fits_screen: whether rows of a single map that a screen has no room for are omitted.
    """
    is_ascii = is_ascii_only(console)
    parts: list[RenderableType] = [_heading(console, record)]
    if not record.heads:
        if record.maps is not None:
            parts.append(Text("--heads: no head meets the conditions", style="dim"))
        console.print(Group(*parts))
        return
    is_alpha = record.weighting.name == "alpha"
    roles = {head: role for head in record.heads if (role := record.role(head)) is not None}
    if roles:
        parts += [Text(), role_grid(console, roles, record.rare.reason)]
    if is_alpha and record.aligned is not None and record.aligned.links:
        parts.append(_alignment(record.aligned, is_ascii=is_ascii))
    above = Group(*parts)
    console.print(above)
    note = Text(NOTE if is_alpha else "", style="dim")
    most_rows = None
    if fits_screen and len(maps) == 1:
        lines = sum(len(console.render_lines(part, pad=False)) for part in (above, note))
        around = 5  # an empty line, the map's title and header, what is omitted, the prompt
        most_rows = max(FEWEST_ROWS, console.height - lines - around)
    for head in maps:
        console.print()
        console.print(heat_map(console, record, head, most_rows))
    if is_alpha:
        console.print(note)


def _heading(console: Console, record: HeadsRecord) -> Group:
    is_ascii = is_ascii_only(console)
    model = record.model
    facts = Text.assemble((shown(model.name, is_ascii=is_ascii), "bold"))
    times = "x" if is_ascii else "×"
    facts.append(f"  {model.n_encoder_layers}+{model.n_decoder_layers} layers")
    facts.append(f" {times} {count_of(model.n_heads, 'head')}")
    if model.sharing:
        facts.append(f" ({model.sharing})")
    if record.maps is not None:
        residual = record.captured.residual
        of_search = " of the search" if record.mode == "live" else ""
        facts.append(f"  maps{of_search} exact" + (f" to {residual:.1e}" if residual else ""))
    if record.maps is not None and model.n_decoder_layers and not record.captured.dec:
        facts.append("  no decoder self-attention (recurrent)")
    if record.maps is not None and record.captured.segment:
        facts.append(f"  segments of {record.captured.segment} tokens, earlier ones are memory")
    if record.score is not None:
        facts.append(f"  score {record.score:.3f}")
    sentence = sentence_lines(console, record.texts)
    weighting = record.weighting
    if weighting.name == "alpha":
        return Group(facts, sentence)
    measure = f"{weighting.name}: {weighting.meaning} ({weighting.source})"
    if not weighting.is_share:
        measure += f"; shaded from 0 to the largest, {record.largest:.4g}"
    return Group(facts, sentence, Text(measure, style="dim"))


def _alignment(aligned: AlignedWords, *, is_ascii: bool) -> Text:
    """Lists which source word each target word goes with."""
    line = Text.assemble(("words aligned by  ", "dim"), (aligned.choice.said, "bold"))
    arrow = "->" if is_ascii else "→"
    pairs = aligned.by_target
    for pair in pairs[:LINKS_SHOWN]:
        target, source = (isolated(shown(word, is_ascii=is_ascii)) for word in pair)
        line.append(f"  {target}{arrow}{source}")
    if len(pairs) > LINKS_SHOWN:
        line.append(f"  and {len(pairs) - LINKS_SHOWN} more", style="dim")
    return line


def check_residual(residual: float, limit: float | None, where: str) -> None:
    """Makes sure that maps reproduce the model's output as exactly as was asked for.

    Raises:
        TformerError: if they do not.
    """
    if limit is not None and not residual <= limit:
        raise TformerError(
            f"{where}: residual {residual:.2g} exceeds --verify {limit:.2g}; the maps do not "
            "reproduce the model's output so exactly"
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
            help="What the maps show; also puts them into jsonl. alpha, also without a value: "
            "attention weights. norm: norms of the weighted values (Kobayashi et al. 2020). Per "
            "layer instead of per head: rollout (attention rollout) or alti (ALTI+ contributions).",
            shown_default="alpha, not in jsonl",
        ),
    ] = None
    verify: Annotated[
        float | None,
        Option(
            help="Exit with status 1 if the maps reproduce the model's output with a larger error.",
            metavar="X",
            min=0.0,
            shown_default="no check",
        ),
    ] = None
    for_page: bool = False
    """True to capture also what only a page shows: words, queries and keys, the search."""


class HeadsView(SentenceView["HeadsRecord"]):
    """Shows where the heads look in a sentence."""

    name = "heads"
    title = "Attention heads"
    Options = HeadsOptions
    formats = ("text", "jsonl", "safetensors", "npz", "html", "svg", "png")

    def read(self, subject: Subject, sentence: HeadsRecord, options: HeadsOptions) -> HeadsRecord:
        """Checks the maps of a sentence.

        Raises:
            TformerError: if they are less exact than asked for.
        """
        if sentence.maps is not None:
            check_residual(sentence.maps.residual, options.verify, f"line {sentence.index + 1}")
        return sentence

    def report(self, subject: Subject, sentence: HeadsRecord, options: ReportOptions) -> None:
        """Reads nothing: every report has the maps."""

    def json(self, record: HeadsRecord, *, with_weights: bool = False) -> dict[str, Any]:
        """Makes the data of schema `tformer.heads/1`; a blank line has empty lists."""
        heads = [_head_data(record, head, with_weights) for head in record.heads]
        return describe(record) | {"heads": heads}

    def lines(self, record: HeadsRecord, options: HeadsOptions) -> Iterable[dict[str, Any]]:
        """Makes the line of a sentence, with its maps if a kind of weights was named."""
        return [self.json(record, with_weights=options.weights is not None)]

    def text(self, console: Console, record: HeadsRecord, options: HeadsOptions) -> None:
        """Prints the roles, and the maps of the heads asked for or the first one.

        On a terminal a single map that was not asked for leaves room for the prompt.
        """
        maps: Sequence[HeadId] = record.heads
        if record.heads and not (options.heads and len(record.heads) <= MAPS_SHOWN):
            maps = [record.first_head()]
        show_record(console, record, maps, fits_screen=console.is_terminal and not options.heads)

    def page(self, records: Iterable[HeadsRecord], options: HeadsOptions) -> str:
        """Renders the page of all maps."""
        from tformer_cli.inspection.page.heads_data import render_html

        return render_html(list(records))

    def file(self, record: HeadsRecord, output_format: str) -> bytes | str:
        """Renders the maps of a sentence.

        Raises:
            UsageError: if the sentence is blank, or no head is selected.
        """
        from tformer_cli.inspection.figures.heads_tensors import render_npz, render_safetensors

        if record.maps is not None and not record.heads:
            raise UsageError(
                f"--heads: no head meets the conditions; select others for --format {output_format}"
            )
        if output_format in ("npz", "safetensors"):
            return (render_npz if output_format == "npz" else render_safetensors)(record)
        return super().file(record, output_format)

    def figure(self, record: HeadsRecord) -> str:
        """Draws the maps of the selected heads."""
        from tformer_cli.inspection.figures.heads_svg import render_svg

        return render_svg(record)


def _head_data(record: HeadsRecord, head: HeadId, with_weights: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        **head.data,
        "residual": rounded(record.captured.residuals[head]),
        "role": record.role(head),
        "metrics": plain(record.metrics[head]),
    }
    if with_weights:
        data["weights"] = plain(record.captured.weights(head))
    return data


VIEW = HeadsView()
