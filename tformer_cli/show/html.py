"""Documents as HTML pages that need no script and no network, in the style of all our pages."""

import base64
import re
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from itertools import groupby

from tformer_cli.show.document import (
    Block,
    Cell,
    Document,
    Facts,
    Label,
    Map,
    Note,
    Picture,
    Section,
    Sentences,
    SideBySide,
    Table,
    Text,
    Texts,
    styled_spans,
)
from tformer_cli.show.figure import render_field
from tformer_cli.show.palette import SIGNED_STRENGTH, color, ink_on

_STYLE = """\
header { padding: 16px 24px; background: var(--panel); border-bottom: 1px solid var(--line); }
header p { color: var(--soft); font-size: 13px; max-width: 110ch; margin: 6px 0 0; }
main { padding: 0 24px 16px; max-width: 1320px; }
.tables { display: flex; flex-wrap: wrap; align-items: start; gap: 16px; margin: 0 0 16px; }
.tables .panel { max-width: 100%; margin: 0; }
section > h2 { font-size: 17px; margin: 20px 0 12px; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 16px; margin: 0 0 16px; box-shadow: var(--shadow); }
section > .panel:first-child { margin-top: 16px; }
h4 { font-size: 13px; color: var(--soft); margin: 14px 0 4px; }
@media print { :root { color-scheme: light; } }
"""
_PICTURE_STYLE = """\
.row { display: flex; flex-wrap: wrap; gap: 14px; margin: 10px 0 22px; }
figure { margin: 0; background: var(--panel); border: 1px solid var(--line); padding: 8px;
  border-radius: 8px; }
figure img { display: block; image-rendering: pixelated; }
figcaption { font: 12px/1.4 var(--mono); color: var(--soft); padding-top: 6px; }
"""
_BLOCK_STYLE = """\
.blocks {
  p { white-space: pre-wrap; margin: 8px 0; max-width: 110ch; }
  .note { color: var(--faint); font: 12px var(--mono); overflow-wrap: anywhere; }
  pre { overflow-x: auto; margin: 8px 0; font: 13px/1.5 var(--mono); }
  h3:not(:first-child) { margin: 16px 0 4px; }
  dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 14px; margin: 0; }
  dt { color: var(--soft); font-size: 13px; }
  dd { margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; }
  .side-by-side { display: flex; flex-wrap: wrap; align-items: start; gap: 8px 28px; }
  .side-by-side > * { max-width: 100%; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
  th, td { text-align: right; padding: 3px 10px; white-space: pre; vertical-align: top;
    border-bottom: 1px solid var(--line); }
  tr:last-child td { border-bottom: 0; }
  th { color: var(--soft); font-weight: 600; }
  :is(th, td):first-child { padding-left: 0; }
  .label, .text { text-align: left; unicode-bidi: isolate; }
  td.text { white-space: pre-wrap; }
  .facts td { border: 0; text-align: left; }
  .facts td:last-child { white-space: pre-wrap; }
  .map :is(th, td) { border: 0; padding: 1px; min-width: 24px; height: 22px; font-size: 11px;
    text-align: center; vertical-align: middle; print-color-adjust: exact; }
  .map tr:first-child th { vertical-align: bottom; padding-bottom: 4px; }
  .map tr:first-child bdi { writing-mode: vertical-rl; }
  .map th { font-weight: 400; }
  .map tr > th:first-child { text-align: right; padding-right: 6px; }
  ul { margin: 6px 0 0; padding-left: 20px; }
  a { color: var(--accent); }
  svg { display: block; max-width: 100%; height: auto; }
  .bold { font-weight: 700; } .italic { font-style: italic; }
  .underline { text-decoration: underline; } .dim { color: var(--soft); }
  .green { color: var(--good); } .yellow, .red { color: var(--mark); }
  .cyan { color: var(--accent); } .blue { color: var(--enc); } .orange { color: var(--dec); }
}
"""
STEPS = 20
"""Shades of a map from 0 to its largest number."""


def base_style() -> str:
    """Reads the style sheet of every page, to go before its own."""
    return files("tformer_cli.show").joinpath("page_style.css").read_text(encoding="utf-8")


def render_html(document: Document) -> str:
    sections = "\n".join(line for section in document.sections for line in _section(section))
    return _page(document.title, sections, document.legend)


def render_page(title: str, groups: Iterable[tuple[str, str]]) -> str:
    """Renders groups of `render_blocks` as a page, each below its heading, if it has one."""
    sections = []
    for heading, blocks in groups:
        name = f"<h2>{escape(heading)}</h2>\n" if heading else ""
        sections.append(f'<section>\n{name}<div class="panel">{blocks}</div>\n</section>')
    return _page(title, "\n".join(sections))


def _page(title: str, sections: str, legend: str = "") -> str:
    pictures = _PICTURE_STYLE if "<figure>" in sections else ""
    style = base_style() + _STYLE + block_style(sections) + pictures
    below = f"\n<p>{escape(legend)}</p>" if legend else ""
    return (
        f"{_head(title, style)}\n<header><h1>{escape(title)}</h1>{below}</header>\n"
        f'<main class="blocks">\n{sections}\n</main>\n</body>\n</html>\n'
    )


def block_style(body: str) -> str:
    """The style of rendered blocks, with the colors of those shades that their maps have."""
    shades = set(re.findall(r'<td class="(enc|dec|cross)([0-9]+)"', body))
    rules = [_BLOCK_STYLE]
    for kind, step in sorted(shades):
        grounds = [color(kind, int(step) / STEPS, on_dark=on_dark) for on_dark in (False, True)]
        inks = ", ".join(ink_on(*ground) for ground in grounds)
        shown = ", ".join("#{:02x}{:02x}{:02x}".format(*ground) for ground in grounds)
        rules.append(
            f".{kind}{step} {{ background: light-dark({shown}); color: light-dark({inks}); }}\n"
        )
    return "".join(rules)


def render_blocks(blocks: Iterable[Block], figure: str = "") -> str:
    """Renders blocks as HTML, below a figure in SVG; see `block_style`."""
    parts = [
        f'<div class="blocks">\n<div class="scroll">{figure}</div>'
        if figure
        else '<div class="blocks">'
    ]
    # lines whose places matter stand in one box, which scrolls
    for is_whole, group in groupby(blocks, lambda b: isinstance(b, Text) and not b.wraps):
        if is_whole:
            parts.append(f"<pre>{chr(10).join(map(_spans, group))}</pre>")  # type: ignore[arg-type]
        else:
            parts += (part for block in group for part in _block(block))
    return "\n".join([*parts, "</div>"])


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        if block.spans:
            yield f"<p>{_spans(block)}</p>"
    elif isinstance(block, Texts):
        yield f"<dl>{''.join(_sentence(*pair) for pair in block.sentences)}</dl>"
    elif isinstance(block, Facts):
        rows = ("".join(f"<td>{_spans(cell)}</td>" for cell in row) for row in block.rows)
        yield f'<table class="facts">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>'
    elif isinstance(block, SideBySide):
        parts = ("\n".join(_block(part)) for part in block.blocks)
        yield f'<div class="side-by-side">{"".join(f"<div>{part}</div>" for part in parts)}</div>'
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Map):
        yield from _heat_map(block)
    else:
        yield f'<div class="scroll">{render_field(block)}</div>'


def _table(table: Table) -> Iterator[str]:
    classes = [
        _class("text" if place in table.texts else "label" * (place in table.labels))
        for place in range(len(table.head))
    ]
    lines = [
        "".join(
            f'<th scope="col"{c}>{escape(h)}</th>' for c, h in zip(classes, table.head, strict=True)
        )
    ]
    for row in table.rows:
        cells = (f"<td{c}>{_spans(cell)}</td>" for c, cell in zip(classes, row, strict=True))
        lines.append("".join(cells))
    styles = ["", *(table.row_styles or [""] * len(table.rows))]
    body = "".join(f"<tr{_class(s)}>{line}</tr>" for s, line in zip(styles, lines, strict=True))
    if table.title:
        yield f"<h3>{escape(table.title)}</h3>"
    yield f'<div class="scroll"><table>{body}</table></div>'
    yield from (
        f"<p{_class(c)}>{escape(words)}</p>"
        for c, words in (("note", table.note), ("", table.remark))
        if words
    )


def _heat_map(block: Map) -> Iterator[str]:
    """A cell holds hundredths, as on a terminal, and shows its number where one points at it."""
    if block.title:
        yield f"<h3>{escape(block.title)}</h3>"
    rows, keys = block.labels
    lines = ["".join(f'<th scope="col"><bdi>{escape(key)}</bdi></th>' for key in keys)]
    lines[0] = f"<td></td>{lines[0]}"
    for label, values in zip(rows, block.values, strict=True):
        cells = "".join(_shade(block, value) for value in values)
        lines.append(f'<th scope="row"><bdi>{escape(label)}</bdi></th>{cells}')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    yield f'<div class="scroll"><table class="map">{body}</table></div>'


def _shade(block: Map, value: float) -> str:
    share = value / (block.largest or 1.0)
    kind = block.kind
    if block.is_signed:
        kind, share = ("dec" if value > 0 else "enc"), SIGNED_STRENGTH * abs(share)
    hundredths = f"{100 * value:{'+' if block.is_signed else ''}.0f}" if abs(value) >= 0.005 else ""
    step = round(STEPS * min(max(share, 0.0), 1.0))
    return f'<td class="{kind}{step}" title="{value:.6g}">{hundredths}</td>'


def _spans(cell: Cell | Text | str) -> str:
    """The text of a cell; a label keeps its direction, and styles are classes."""
    parts = []
    for words, style in styled_spans(cell):
        shown = f"<bdi>{escape(words)}</bdi>" if isinstance(words, Label) else escape(words)
        classes = " ".join(filter(str.isalpha, style.split()))
        parts.append(f'<span class="{classes}">{shown}</span>' if classes else shown)
    if isinstance(cell, Cell) and cell.anchor:
        return f'<a href="#{escape(cell.anchor, quote=True)}">{"".join(parts)}</a>'
    return "".join(parts)


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
            yield "\n".join(['<div class="panel">', *_table(table), "</div>"])
        yield "</div>"
    for note in section.notes:
        yield from _note(note)
    for row in section.pictures:
        yield f'<div class="row">{"".join(map(_picture, row))}</div>'
    for sentences in section.sentences:
        yield from _sentences(sentences)
    yield "</section>"


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
        yield from (_sentence(name, text) for name, text in sentence.texts)
        yield "</dl>"
    yield "</div>"


def _sentence(name: str, text: str) -> str:
    # a translation may run from right to left under a name that does not
    return f'<dt>{escape(name)}</dt><dd dir="auto">{escape(text)}</dd>'
