r"""Documents as Markdown with GitHub's tables, and as LaTeX for `\input`; texts stay the same."""

import re
from collections.abc import Iterator, Sequence

from tformer_cli.show.document import Cell, Document, Section, Table, Text, plain_text

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$])")
# LaTeX's first fonts have no straight quote: \textquotedbl is why a document asks for T1.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def render_markdown(document: Document) -> str:
    lines = [f"# {document.title}", "", _md(document.legend)]
    lines += [line for section in document.sections for line in _markdown_section(section)]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    # a line end would end a row of a table
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _markdown_section(section: Section) -> Iterator[str]:
    yield from ("", f"## {_md(section.title)}")
    for table in section.tables:
        yield from _markdown_table(table)
    for group in section.sentences:
        yield from ("", f"### {_md(group.heading)}")
        for sentence in group.sentences:
            yield from ("", _md(sentence.heading), "")
            yield from (f"- {_md(name)}: {_md(text)}" for name, text in sentence.texts)


def _markdown_table(table: Table) -> Iterator[str]:
    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def text(cell: Cell | Text | str) -> str:
        written = _md(plain_text(cell))
        return f"**{written}**" if isinstance(cell, Cell) and cell.is_best else written

    yield from ("", f"### {_md(table.title)}", "", row([_md(label) for label in table.head]))
    yield row(
        [
            ":--" if place in (*table.labels, *table.texts) else "--:"
            for place in range(len(table.head))
        ]
    )
    yield from (row([text(cell) for cell in cells]) for cells in table.rows)
    if table.note:
        yield from ("", f"`{table.note}`")
    if table.remark:
        yield from ("", _md(table.remark))


def render_latex(document: Document) -> str:
    lines = [
        f"% {document.title}. Needs \\usepackage{{booktabs}} and \\usepackage[T1]{{fontenc}}.",
        f"% {document.legend}",
        *(line for section in document.sections for line in _latex_section(section)),
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def _latex_section(section: Section) -> Iterator[str]:
    yield from ("", rf"\section*{{{_tex(section.title)}}}")
    for table in section.tables:
        yield from _latex_table(table)
    for group in section.sentences:
        yield from ("", rf"\subsection*{{{_tex(group.heading)}}}")
        for sentence in group.sentences:
            yield from ("", rf"\paragraph{{{_tex(sentence.heading)}}}")
            yield r"\begin{description}"
            for name, text in sentence.texts:
                yield rf"  \item[{{{_tex(name)}}}] {_tex(text)}"
            yield r"\end{description}"


def _latex_table(table: Table) -> Iterator[str]:
    def row(cells: Sequence[str]) -> str:
        return rf"{' & '.join(cells)} \\"

    def text(cell: Cell | Text | str) -> str:
        written = _tex(plain_text(cell))
        is_best = isinstance(cell, Cell) and cell.is_best
        return rf"\textbf{{{written}}}" if is_best else written

    # numbers stand below each other by their last digit
    columns = "".join(
        "l" if place in (*table.labels, *table.texts) else "r" for place in range(len(table.head))
    )
    yield from ("", r"\begin{table}[ht]", r"\centering")
    yield rf"\caption{{{_tex(table.title)}}}"
    yield rf"\begin{{tabular}}{{{columns}}}"
    yield from (r"\toprule", row([_tex(label) for label in table.head]), r"\midrule")
    yield from (row([text(cell) for cell in cells]) for cells in table.rows)
    yield from (r"\bottomrule", r"\end{tabular}")
    if table.note:
        yield rf"\par\smallskip{{\footnotesize\ttfamily {_tex(table.note)}}}"
    if table.remark:
        yield rf"\par\smallskip{{\footnotesize {_tex(table.remark)}}}"
    yield r"\end{table}"
