"""A comparison as one HTML file without a script, in the style of all of tformer's pages."""

from collections.abc import Iterator, Sequence
from html import escape

from tformer_cli.evaluation.comparison.report import TITLE, Cell, Section, Sentence, Table
from tformer_cli.figures.page_style import base_style

_STYLE = """\
header { padding: 16px 24px; background: var(--panel); border-bottom: 1px solid var(--line); }
header p { color: var(--soft); font-size: 13px; max-width: 110ch; margin: 6px 0 0; }
main { padding: 0 24px 16px; max-width: 1320px; }
.tables { display: flex; flex-wrap: wrap; align-items: start; gap: 16px; margin: 0 0 16px; }
.tables .panel { max-width: 100%; margin: 0; }
section > h2 { font-size: 17px; margin: 20px 0 12px; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 16px; margin: 0 0 16px; box-shadow: var(--shadow); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr:last-child td { border-bottom: 0; }
.best { font-weight: 700; color: var(--good); }
.note { color: var(--faint); font: 12px var(--mono); overflow-wrap: anywhere; margin: 8px 0 0; }
h4 { font-size: 13px; color: var(--soft); margin: 14px 0 4px; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 14px; margin: 0; }
dt { color: var(--soft); font-size: 13px; }
dd { margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; }
"""
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def render_html(sections: Sequence[Section], title: str = TITLE) -> str:
    """Renders sections; the same comparison gives the same bytes.

    Args:
        sections: what the page says.
        title: its heading.
    """
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        _POLICY,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="generator" content="tformer">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>\n<style>\n{base_style()}{_STYLE}</style>\n</head>\n<body>",
        f"<header><h1>{escape(title)}</h1>\n<p>{escape(sections[0].legend)}</p></header>\n<main>",
        *(line for one in sections for line in _section(one)),
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(lines)


def _section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{escape(section.title)}</h2>"
    yield '<div class="tables">'
    for table in section.tables:
        yield from _table(table)
    yield "</div>"
    for heading, sentences in section.sentences:
        yield f'<div class="panel">\n<h3>{escape(heading)}</h3>'
        for sentence in sentences:
            yield from _sentence(sentence)
        yield "</div>"
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    yield f'<div class="panel">\n<h3>{escape(table.title)}</h3>\n<div class="scroll"><table>'
    yield f"<tr>{''.join(f'<th>{escape(one)}</th>' for one in table.head)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(_cell(cell) for cell in row)}</tr>"
    yield "</table></div>"
    if table.note:
        yield f'<p class="note">{escape(table.note)}</p>'
    if table.remark:
        yield f"<p>{escape(table.remark)}</p>"
    yield "</div>"


def _cell(cell: Cell) -> str:
    kind = ' class="best"' if cell.is_best else ""
    return f"<td{kind}>{escape(cell.text)}</td>"


def _sentence(sentence: Sentence) -> Iterator[str]:
    yield f"<h4>{escape(sentence.heading)}</h4>\n<dl>"
    for name, text in sentence.texts:
        yield f'<dt>{escape(name)}</dt><dd dir="auto">{escape(text)}</dd>'
    yield "</dl>"
