"""The report of a corpus as one HTML page that needs no network and no script."""

from collections.abc import Iterator, Sequence
from html import escape

from tformer_cli.data.quality.checks import CHECKS, DROPPING
from tformer_cli.data.quality.encoding import written_out
from tformer_cli.wording import count_of
from tformer_cli.workflows.quality.check_data import DataReport

LONGEST = 1000
"""Characters of a side that are shown."""
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }
tr + tr { border-top: 1px solid #8884 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.why, .place { opacity: .7 }
td.text { width: 45%; overflow-wrap: anywhere }
pre { overflow-x: auto; padding: .6rem; border: 1px solid #8884 }
"""


def render_html(report: DataReport) -> str:
    """Renders a report: counts, examples, doubts and commands."""
    title = escape(", ".join(report.corpora))
    kept = report.pairs - report.dropped
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            '<meta name="generator" content="tformer">',
            '<meta name="viewport" content="width=device-width">',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f"<p>{count_of(report.pairs, report.facts.kind.noun)}; {kept:,} raise no doubt.</p>",
            *_counts(report),
            *_list("Doubts", report.doubts),
            *_commands(report),
            *_examples(report),
            "</body></html>",
            "",
        ]
    )


def _meaning(report: DataReport, name: str) -> str:
    return escape(CHECKS[name].means(report.facts.kind))


def _counts(report: DataReport) -> Iterator[str]:
    yield f"<table><tr><th>check<th class=number>{report.facts.kind.noun}s"
    yield "<th class=number>share<th>dropped<th>meaning"
    for name, count in report.found.items():
        share = count.pairs / max(report.pairs, 1)
        link = f'<a href="#{name}">{name}</a>' if count.examples else name
        yield (
            f"<tr><td>{link}<td class=number>{count.pairs:,}<td class=number>{share:.2%}"
            f"<td>{'yes' if name in DROPPING else 'no'}<td>{_meaning(report, name)}"
        )
    yield "</table>"


def _examples(report: DataReport) -> Iterator[str]:
    for name, count in report.found.items():
        if not count.examples:
            continue
        yield f'<h2 id="{name}">{name}</h2><p>{_meaning(report, name)}</p><table>'
        for one in count.examples:
            where = f"{escape(report.corpora[one.corpus])}, " if len(report.corpora) > 1 else ""
            named = report.facts.kind.named(one.record.pair).values()
            sides = "".join(f'<td class=text dir="auto">{_text(side)}' for side in named)
            yield f"<tr><td class=place>{where}{one.record.number:,}{sides}"
            yield f"<tr><td><td class=why colspan=2>{_text(one.found[name])}"
        yield "</table>"


def _list(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"<h2>{title}</h2><ul>"
        yield from (f"<li>{_text(text)}" for text in texts)
        yield "</ul>"


def _commands(report: DataReport) -> Iterator[str]:
    if report.commands:
        yield f"<h2>To mend it</h2><pre>{_text(chr(10).join(report.commands))}</pre>"


def _text(text: str) -> str:
    """A text for a page: cut, with its invisible characters and its markup written out."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "\n".join(escape(written_out(line)) for line in cut.split("\n"))
