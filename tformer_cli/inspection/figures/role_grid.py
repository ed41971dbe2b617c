"""The roles of all heads on a terminal: a sign for each, by kind, layer and head."""

from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tformer_cli.show.terminal import Column, is_ascii_only, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tformer_cli.inspection.capture.heads import HeadId
    from tformer_cli.inspection.heads.roles import Role

SIGNS: dict["Role", tuple[str, str]] = {
    "previous": ("◀", "<"),
    "self": ("●", "o"),
    "next": ("▶", ">"),
    "sink": ("▼", "v"),
    "aligner": ("≡", "="),
    "broad": ("▒", "#"),
    "rare": ("★", "*"),
    "other": ("·", "."),
}
"""The sign of each role, and the one without Unicode."""

ORDER = (
    "Metrics are means over rows. If several of previous, self, next and sink hold, the one with "
    "the largest mass wins; then the first of aligner, broad, rare, other. Token frequencies come "
    "from the model directory (frequencies.json of a run), with --corpus else from the corpus. "
    "Without them, and in a sentence with no rare token or fewer than 6 tokens, rare-word heads "
    "are not judged. A role says where a head looks, not whether it matters."
)


def role_grid(console: Console, roles: "Mapping[HeadId, Role]", rare_reason: str = "") -> Group:
    """Draws a grid of signs for each kind, layers down and heads across, and a legend."""
    is_ascii = is_ascii_only(console)
    cells = {head: sign_of(role, is_ascii=is_ascii) for head, role in roles.items()}
    grids = head_grids(console, cells)
    legend = _legend(roles.values(), is_ascii)
    if rare_reason and any(head.kind == "enc" for head in roles):
        legend.append(f"\nrare-word heads are not classified: {rare_reason}")
    return Group(grids, legend)


def sign_of(role: "Role", *, is_ascii: bool) -> Text:
    """The sign of a role."""
    return Text(SIGNS[role][is_ascii], style="dim" if role == "other" else "bold")


def head_grids(console: Console, cells: "Mapping[HeadId, Text]") -> Columns:
    """Draws a grid for each kind of head, layers down and heads across, as many as fit a line."""
    from tformer_cli.inspection.capture.heads import KIND_NAMES, KINDS

    grids = []
    for kind in KINDS:
        heads = [head for head in cells if head.kind == kind]
        if heads:
            title = Text(KIND_NAMES[kind], style="bold")
            grids.append(Group(title, *_grid(console, cells, heads)))
    return Columns(grids, padding=(1, 4, 0, 0))


def _grid(
    console: Console, cells: "Mapping[HeadId, Text]", heads: "Sequence[HeadId]"
) -> list[Text]:
    from tformer_cli.inspection.capture.heads import HeadId

    layers = sorted({head.layer for head in heads})
    numbers = sorted({head.head for head in heads})
    kind = heads[0].kind
    columns = [Column("", [Text(f"L{layer}", style="dim") for layer in layers])]
    for number in numbers:
        found = [cells.get(HeadId(kind, layer, number), Text()) for layer in layers]
        columns.append(Column(str(number), found))
    return table_lines(columns, console.width, gap=1)


def _legend(roles: "Iterable[Role]", is_ascii: bool) -> Text:
    used = set(roles)
    named = [f"{signs[is_ascii]} {role}" for role, signs in SIGNS.items() if role in used]
    return Text(f"roles: {', '.join(named)} (--explain)", style="dim")


def show_role_rules(console: Console) -> None:
    """Prints every role with its rule and the source of its thresholds."""
    from tformer_cli.inspection.heads.roles import ROLES

    is_ascii = is_ascii_only(console)
    grid = Table.grid(padding=(0, 2))
    for _ in range(2):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for rule in ROLES:
        text = Text.assemble(f"{rule.meaning}\n", (rule.formula, "bold"))
        if rule.source != "-":
            text.append(f"\n{rule.source}", "dim")
        grid.add_row(sign_of(rule.role, is_ascii=is_ascii), rule.role, text)
    console.print(grid)
    console.print(Text(ORDER, style="dim"))
