"""A sentence's heads on a terminal: all their roles, which words go together, and some maps."""

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.text import Text

from tformer_cli.inspection.figures.heat_map import heat_map
from tformer_cli.inspection.figures.role_grid import role_grid
from tformer_cli.terminal.labels import is_ascii_only, isolated, sentence_lines, shown
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from tformer_cli.inspection.alignment.best import AlignedWords
    from tformer_cli.inspection.capture.heads import HeadId
    from tformer_cli.inspection.record import HeadsRecord

FEWEST_ROWS = 8
"""Rows of a map that are shown on any screen."""
LINKS_SHOWN = 24
"""Most links that are listed."""
NOTE = "attention weights are not importance: see --weights norm, --weights alti, inspect-ablate"


def show_record(
    console: Console,
    record: "HeadsRecord",
    maps: "Sequence[HeadId]",
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


def _heading(console: Console, record: "HeadsRecord") -> Group:
    is_ascii = is_ascii_only(console)
    model = record.model
    facts = Text.assemble((shown(model.name, is_ascii=is_ascii), "bold"))
    times = "x" if is_ascii else "×"
    facts.append(f"  {model.n_encoder_layers}+{model.n_decoder_layers} layers")
    facts.append(f" {times} {count_of(model.n_heads, 'head')}")
    if record.maps is not None:
        facts.append(f"  maps: {record.mode}, residual {record.captured.residual:.1e}")
    if record.score is not None:
        facts.append(f"  score {record.score:.3f}")
    name = "given target" if record.is_forced else "translation"
    if (record.rank or 1) > 1:
        name = f"translation {record.rank}"
    sentence = sentence_lines(console, [("source", record.source), (name, record.target)])
    weighting = record.weighting
    if weighting.name == "alpha":
        return Group(facts, sentence)
    measure = f"{weighting.name}: {weighting.meaning} ({weighting.source})"
    if not weighting.is_share:
        measure += f"; shaded from 0 to the largest, {record.largest:.4g}"
    return Group(facts, sentence, Text(measure, style="dim"))


def _alignment(aligned: "AlignedWords", *, is_ascii: bool) -> Text:
    """Lists which source word each target word goes with."""
    why = "stored" if aligned.is_stored else "most confident"
    line = Text.assemble(
        ("best alignment  ", "dim"),
        (aligned.heads, "bold"),
        (f" ({aligned.convention}, {why})", "dim"),
    )
    arrow = "->" if is_ascii else "→"
    pairs = aligned.by_target
    for pair in pairs[:LINKS_SHOWN]:
        target, source = (isolated(shown(word, is_ascii=is_ascii)) for word in pair)
        line.append(f"  {target}{arrow}{source}")
    if len(pairs) > LINKS_SHOWN:
        line.append(f"  and {len(pairs) - LINKS_SHOWN} more", style="dim")
    return line
