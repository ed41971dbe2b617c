r"""A comparison as LaTeX, to be `\input` into a document that uses the package booktabs."""

from collections.abc import Iterator, Sequence

from tformer_cli.evaluation.comparison.report import TITLE, Cell, Section, Table

_SPECIAL = str.maketrans(
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


def render_latex(sections: Sequence[Section]) -> str:
    r"""Renders sections; every text is shown as it is.

    The document needs `\usepackage{booktabs}`, `\usepackage[T1]{fontenc}` and, for texts in other
    than Latin letters, XeLaTeX or LuaLaTeX with a font that has them.
    """
    lines = [
        f"% {TITLE}. Needs \\usepackage{{booktabs}} and \\usepackage[T1]{{fontenc}}.",
        f"% {sections[0].legend}",
        *(line for one in sections for line in _section(one)),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Writes a text so that none of its characters is a command."""
    return " ".join(text.split()).translate(_SPECIAL)


def _section(section: Section) -> Iterator[str]:
    yield from ("", rf"\section*{{{escaped(section.title)}}}")
    for table in section.tables:
        yield from _table(table)
    for heading, sentences in section.sentences:
        yield from ("", rf"\subsection*{{{escaped(heading)}}}")
        for sentence in sentences:
            yield from ("", rf"\paragraph{{{escaped(sentence.heading)}}}")
            yield r"\begin{description}"
            for name, text in sentence.texts:
                yield rf"  \item[{{{escaped(name)}}}] {escaped(text)}"
            yield r"\end{description}"


def _table(table: Table) -> Iterator[str]:
    yield from ("", r"\begin{table}[ht]", r"\centering")
    yield rf"\caption{{{escaped(table.title)}}}"
    yield rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}"
    yield from (r"\toprule", _row([escaped(one) for one in table.head]), r"\midrule")
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)
    yield from (r"\bottomrule", r"\end{tabular}")
    if table.note:
        yield rf"\par\smallskip{{\footnotesize\ttfamily {escaped(table.note)}}}"
    if table.remark:
        yield rf"\par\smallskip{{\footnotesize {escaped(table.remark)}}}"
    yield r"\end{table}"


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    return rf"\textbf{{{text}}}" if cell.is_best else text
