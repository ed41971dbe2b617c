"""The report of a corpus as a document."""

from collections.abc import Iterator

from tformer_cli.data.quality.checks import CHECKS, DROPPING
from tformer_cli.data.quality.encoding import written_out
from tformer_cli.show.document import Cell, Document, Note, Section, Sentence, Sentences, Table
from tformer_cli.wording import count_of
from tformer_cli.workflows.quality.check_data import DataReport

LONGEST = 1000
"""Characters of a text that are shown."""


def report_document(report: DataReport) -> Document:
    """Counts of each check, doubts, commands, and examples under the name of their check."""
    lists = [
        Note(title="Doubts", lines=tuple(map(_shown, report.doubts))),
        Note(title="To mend it", lines=tuple(map(_shown, report.commands)), is_code=True),
    ]
    kept = report.pairs - report.dropped
    checks = Section(
        title="Checks",
        tables=(_counts(report),),
        notes=tuple(one for one in lists if one.lines),
        sentences=tuple(_examples(report)),
        legend=f"{count_of(report.pairs, report.facts.kind.noun)}; {kept:,} raise no doubt.",
    )
    return Document(title=", ".join(report.corpora), sections=[checks])


def _counts(report: DataReport) -> Table:
    kind = report.facts.kind
    return Table(
        title="Found",
        head=("check", f"{kind.noun}s", "share", "dropped", "meaning"),
        rows=tuple(
            (
                Cell(name, anchor=name if count.examples else ""),
                Cell(f"{count.pairs:,}"),
                Cell(f"{count.pairs / max(report.pairs, 1):.2%}"),
                Cell("yes" if name in DROPPING else "no"),
                Cell(CHECKS[name].means(kind)),
            )
            for name, count in report.found.items()
        ),
        texts=(3, 4),
    )


def _examples(report: DataReport) -> Iterator[Sentences]:
    kind = report.facts.kind
    for name, count in report.found.items():
        if not count.examples:
            continue
        sentences = []
        for one in count.examples:
            where = f"{report.corpora[one.corpus]}, " if len(report.corpora) > 1 else ""
            texts = {**kind.named(one.record.pair), "why": one.found[name]}
            sentences.append(
                Sentence(
                    heading=f"{where}line {one.record.number:,}",
                    texts=tuple((side, _shown(text)) for side, text in texts.items()),
                )
            )
        yield Sentences(
            heading=name, text=CHECKS[name].means(kind), anchor=name, sentences=tuple(sentences)
        )


def _shown(text: str) -> str:
    """A text of bounded length, its invisible characters written out."""
    kept = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "\n".join(written_out(line) for line in kept.split("\n"))
