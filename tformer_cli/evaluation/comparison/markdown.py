"""A comparison as Markdown, with the tables of GitHub."""

import re
from collections.abc import Iterator, Sequence

from tformer_cli.evaluation.comparison.report import TITLE, Cell, Section, Table

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def render_markdown(sections: Sequence[Section]) -> str:
    """Renders sections; every text is shown as it is."""
    lines = [f"# {TITLE}", "", escaped(sections[0].legend)]
    return "\n".join([*lines, *(line for one in sections for line in _section(one))]) + "\n"


def escaped(text: str) -> str:
    """Writes a text so that none of its characters is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {escaped(section.title)}")
    for table in section.tables:
        yield from _table(table)
    for heading, sentences in section.sentences:
        yield from ("", f"### {escaped(heading)}")
        for sentence in sentences:
            yield from ("", escaped(sentence.heading), "")
            yield from (f"- {escaped(name)}: {escaped(text)}" for name, text in sentence.texts)


def _table(table: Table) -> Iterator[str]:
    yield from ("", f"### {escaped(table.title)}", "")
    yield _row([escaped(one) for one in table.head])
    yield _row([":--", *["--:"] * (len(table.head) - 1)])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)
    if table.note:
        yield from ("", f"`{table.note}`")
    if table.remark:
        yield from ("", escaped(table.remark))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    return f"**{text}**" if cell.is_best else text
