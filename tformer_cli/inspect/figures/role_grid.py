"""The roles of all heads: a sign for each, by kind, layer and head; and the rules of the roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.show.document import (
    Block,
    Facts,
    Room,
    SideBySide,
    Span,
    Table,
    Text,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tformer_cli.heads.names import HeadId
    from tformer_cli.heads.roles import Role

SIGNS: dict[Role, tuple[str, str]] = {
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


def sign_of(role: Role, room: Room) -> Span:
    return SIGNS[role][room.is_ascii], "dim" if role == "other" else "bold"


def signed(role: Role, room: Room) -> Text:
    """A role behind its sign."""
    return text(sign_of(role, room), f" {role}")


def role_grid(roles: Mapping[HeadId, Role], room: Room, rare_reason: str = "") -> Iterator[Block]:
    """A grid of signs for each kind, layers down and heads across, and a legend."""
    yield head_grids({head: text(sign_of(role, room)) for head, role in roles.items()})
    used = set(roles.values())
    named = [f"{signs[room.is_ascii]} {role}" for role, signs in SIGNS.items() if role in used]
    legend: list[Span] = [(f"roles: {', '.join(named)} (--explain)", "dim")]
    if rare_reason and any(head.kind == "enc" for head in roles):
        legend.append((f"\nrare-word heads are not classified: {rare_reason}", "dim"))
    yield text(*legend)


def head_grids(cells: Mapping[HeadId, Text]) -> SideBySide:
    """A grid for each kind of head, layers down and heads across."""
    from tformer_cli.heads.names import KIND_NAMES, KINDS, HeadId

    grids = []
    for kind in KINDS:
        layers = sorted({head.layer for head in cells if head.kind == kind})
        numbers = sorted({head.head for head in cells if head.kind == kind})
        rows = [
            [text((f"L{layer}", "dim"))]
            + [cells.get(HeadId(kind, layer, number), Text()) for number in numbers]
            for layer in layers
        ]
        if rows:
            head = ("", *map(str, numbers))
            grids.append(Table(title=KIND_NAMES[kind], head=head, rows=rows, labels=(), gap=1))
    return SideBySide(grids)


def role_rules(room: Room) -> Iterator[Block]:
    """Every role with its rule and the source of its thresholds."""
    from tformer_cli.heads.roles import ROLES

    rows = []
    for rule in ROLES:
        spans: list[Span] = [f"{rule.meaning}\n", (rule.formula, "bold")]
        if rule.source != "-":
            spans.append((f"\n{rule.source}", "dim"))
        rows.append([text(sign_of(rule.role, room)), rule.role, text(*spans)])
    yield Facts(rows)
    yield text(ORDER, style="dim")
