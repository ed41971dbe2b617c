"""Documents as HTML pages that need no script and no network, in the style of all our pages."""

import base64
from collections.abc import Iterator
from html import escape
from importlib.resources import files

from tformer_cli.show.document import (
    Cell,
    Document,
    Note,
    Picture,
    Section,
    Sentences,
    Table,
    Text,
    plain_text,
)

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
_NOTE_STYLE = """\
th.text, td.text { text-align: left; white-space: normal; }
pre { overflow-x: auto; margin: 8px 0 0; font: 13px/1.5 var(--mono); }
ul { margin: 6px 0 0; padding-left: 20px; }
a { color: var(--accent); }
"""
_PICTURE_STYLE = """\
.row { display: flex; flex-wrap: wrap; gap: 14px; margin: 10px 0 22px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); padding: 8px;
  border-radius: 8px; }
figure img { display: block; image-rendering: pixelated; }
figcaption { font: 12px/1.4 var(--mono); color: var(--soft); padding-top: 6px; }
"""


def base_style() -> str:
    """Reads the style sheet of every page, to go before its own."""
    return files("tformer_cli.show").joinpath("page_style.css").read_text(encoding="utf-8")


def render_html(document: Document) -> str:
    # rules that a page does not use are omitted, so that its bytes change only with what it shows
    style = base_style() + _STYLE
    if any(section.notes for section in document.sections):
        style += _NOTE_STYLE
    if any(section.pictures for section in document.sections):
        style += _PICTURE_STYLE
    legend = f"\n<p>{escape(document.legend)}</p>" if document.legend else ""
    lines = [
        _head(document.title, style),
        f"<header><h1>{escape(document.title)}</h1>{legend}</header>",
        "<main>",
        *(line for section in document.sections for line in _section(section)),
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(lines)


def data_url(png: bytes) -> str:
    # inside the page: it can be mailed, and its policy lets nothing be loaded
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _head(title: str, style: str) -> str:
    """The beginning of a page, up to its body; its policy forbids to load anything."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="tformer">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>"
    )


def _section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{escape(section.title)}</h2>"
    if section.summary:
        yield f"<p>{escape(section.summary)}</p>"
    if section.tables:
        yield '<div class="tables">'
        for table in section.tables:
            yield from _table(table)
        yield "</div>"
    for note in section.notes:
        yield from _note(note)
    for row in section.pictures:
        yield f'<div class="row">{"".join(map(_picture, row))}</div>'
    for sentences in section.sentences:
        yield from _sentences(sentences)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    # the first column needs no class: the style of all tables has it on the left
    classes = ["text" * (place in table.texts) for place in range(len(table.head))]
    heads = (
        f"<th{_class(c)}>{escape(label)}</th>" for c, label in zip(classes, table.head, strict=True)
    )
    yield f'<div class="panel">\n<h3>{escape(table.title)}</h3>\n<div class="scroll"><table>'
    yield f"<tr>{''.join(heads)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(map(_cell, row, classes))}</tr>"
    yield "</table></div>"
    if table.note:
        yield f'<p class="note">{escape(table.note)}</p>'
    if table.remark:
        yield f"<p>{escape(table.remark)}</p>"
    yield "</div>"


def _cell(cell: Cell | Text | str, kind: str) -> str:
    if not isinstance(cell, Cell):
        return f"<td{_class(kind)}>{escape(plain_text(cell))}</td>"
    text = escape(cell.text)
    if cell.anchor:
        text = f'<a href="#{escape(cell.anchor, quote=True)}">{text}</a>'
    return f"<td{_class('best' if cell.is_best else kind)}>{text}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _note(note: Note) -> Iterator[str]:
    yield f'<div class="panel">\n<h3>{escape(note.title)}</h3>'
    if note.is_code:
        yield f"<pre>{escape(chr(10).join(note.lines))}</pre>"
    else:
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in note.lines)}</ul>"
    yield "</div>"


def _picture(picture: Picture) -> str:
    lines = "<br>".join(map(escape, picture.caption))
    return (
        f'<figure><img alt="{escape(picture.caption[0], quote=True)}" '
        f'src="{data_url(picture.png)}"><figcaption>{lines}</figcaption></figure>'
    )


def _sentences(group: Sentences) -> Iterator[str]:
    name = f' id="{escape(group.anchor, quote=True)}"' if group.anchor else ""
    yield f'<div class="panel"{name}>\n<h3>{escape(group.heading)}</h3>'
    if group.text:
        yield f"<p>{escape(group.text)}</p>"
    for sentence in group.sentences:
        yield f"<h4>{escape(sentence.heading)}</h4>\n<dl>"
        for name, text in sentence.texts:
            # a translation may run from right to left under a name that does not
            yield f'<dt>{escape(name)}</dt><dd dir="auto">{escape(text)}</dd>'
        yield "</dl>"
    yield "</div>"
