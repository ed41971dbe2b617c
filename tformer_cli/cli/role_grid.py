"""The roles of all heads on a terminal: a sign for each, by kind, layer and head."""

from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tformer_cli.inspection.heads import HeadId
    from tformer_cli.inspection.roles import Role

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
    "Metrics are means over rows. Of previous, self, next and sink that hold, the one with the "
    "largest mass is meant; then the first of aligner, broad, rare, other. How frequent tokens "
    "are is read from the model directory (frequencies.json of a run), in corpus mode else counted "
    "in the corpus; without that, and in a sentence with no rare token or fewer than 6, rare-word "
    "heads are not judged. A role says where a head looks, not whether it matters."
)


def role_grid(roles: "Mapping[HeadId, Role]", *, is_ascii: bool, rare_reason: str = "") -> Group:
    """Draws a grid of signs for each kind, layers down and heads across, and a legend.

    Args:
        roles: the role of each head.
        is_ascii: whether signs are ASCII.
        rare_reason: why no rare-word head could be found; empty if they were looked for.
    """
    from tformer_cli.inspection.heads import KIND_NAMES, KINDS

    grids = []
    for kind in KINDS:
        heads = [head for head in roles if head.kind == kind]
        if heads:
            grid = _grid(roles, heads, is_ascii)
            grids.append(Group(Text(KIND_NAMES[kind], style="bold"), grid))
    legend = _legend(roles.values(), is_ascii)
    if rare_reason and any(head.kind == "enc" for head in roles):
        legend.append(f"\nrare-word heads are not judged: {rare_reason}")
    return Group(Columns(grids, padding=(1, 4, 0, 0)), legend)


def sign_of(role: "Role", *, is_ascii: bool) -> Text:
    """The sign of a role."""
    return Text(SIGNS[role][is_ascii], style="dim" if role == "other" else "bold")


def _grid(roles: "Mapping[HeadId, Role]", heads: "Sequence[HeadId]", is_ascii: bool) -> Table:
    numbers = sorted({head.head for head in heads})
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", style="dim", no_wrap=True)
    for number in numbers:
        table.add_column(str(number), header_style="dim", justify="right", no_wrap=True)
    by_place = {(head.layer, head.head): roles[head] for head in heads}
    for layer in sorted({head.layer for head in heads}):
        found = [by_place.get((layer, number)) for number in numbers]
        signs = [Text("") if role is None else sign_of(role, is_ascii=is_ascii) for role in found]
        table.add_row(f"L{layer}", *signs)
    return table


def _legend(roles: "Iterable[Role]", is_ascii: bool) -> Text:
    used = set(roles)
    named = [f"{signs[is_ascii]} {role}" for role, signs in SIGNS.items() if role in used]
    return Text(f"roles: {', '.join(named)} (--explain)", style="dim")


def role_rules(*, is_ascii: bool) -> Group:
    """Lists every role with its rule and the source of its thresholds."""
    from tformer_cli.inspection.roles import ROLES

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "role", "looks at", "rule", "threshold from"):
        table.add_column(name, header_style="dim", overflow="fold")
    for rule in ROLES:
        sign = sign_of(rule.role, is_ascii=is_ascii)
        table.add_row(sign, rule.role, rule.meaning, rule.formula, rule.source)
    return Group(table, Text(ORDER, style="dim"))
