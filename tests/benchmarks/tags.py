"""Markup in sentences: where tags are in the translations of sentences with random spans.

    python -m tests.benchmarks.tags MODEL SENTENCES [NUMBER]

SENTENCES is a file of the model's source language, such as FLORES's (.gz is read through). Each of
NUMBER (300) sentences gets one or three spans of 1, 2 or 4 words, twice over. Two methods, with the
same model and search:

aligned  what `tformer translate` does with documents: spans go where the attention says
found    the text of a span is translated by itself, and looked for in the translation of all

"placed" is the share of spans that have a place; "contiguous" those whose aligned words stand in
one run, before small gaps are closed; "exact" those spans of words which the translation has
unchanged, and as often as the sentence, that are around exactly these words. Words that are the
same on both sides help to align; "attention" is the share without that help.
"""

import random
import re
import sys
from itertools import pairwise
from pathlib import Path
from unittest import mock

from tformer_cli.documents import projection
from tformer_cli.documents.answers import ModelAnswers, links_of
from tformer_cli.documents.segments import Segment, Span
from tformer_cli.kinds.opening import open_model
from tformer_cli.text.lines import read_lines

WORD = re.compile(r"\w+")


def spans_of(line, n_spans, size, draw):
    """Draws disjoint spans of words; None: the line is too short."""
    words = [match.span() for match in WORD.finditer(line)]
    starts = list(range(0, len(words) - size + 1, size))
    if len(starts) < n_spans:
        return None
    chosen = sorted(draw.sample(starts, n_spans))
    return tuple(
        Span(words[n][0], words[n + size - 1][1], "once", f"<a{i}>", "</a>")
        for i, n in enumerate(chosen)
    )


def find_unchanged(segment, span, text):
    """Returns the place of a span's words in a translation that has them as often, in one run."""
    inner = segment.text[span.start : span.end]
    if len(inner) == 1 and not inner.isdigit():  # English "a" is not Portuguese "a"
        return None
    whole = re.compile(rf"(?<!\w){re.escape(inner)}(?!\w)")
    places = [match.span() for match in whole.finditer(text)]
    if len(places) == 1 == len(whole.findall(segment.text)):
        return places[0]
    return None


def is_contiguous(text, span, links):
    """Returns whether the words of a span are aligned with one run of words."""
    places = sorted(
        link.target for link in links if link.source[0] < span.end and span.start < link.source[1]
    )
    return bool(places) and all(
        not re.search(r"\w", text[a[1] : b[0]]) for a, b in pairwise(places)
    )


def measure_spans(segments, translations, links, texts_of_spans):
    counts = dict.fromkeys(("spans", "contiguous", "found", "same", "exact", "attention", "f"), 0)
    for segment, text, own in zip(segments, translations, links, strict=True):
        aligned = projection.project(segment, text, own, {})
        with mock.patch.object(projection, "_unchanged", return_value=[]):
            heads = projection.project(segment, text, own, {})
        for n, span in enumerate(segment.spans):
            counts["spans"] += 1
            counts["contiguous"] += is_contiguous(text, span, own)
            alone = texts_of_spans[segment.text[span.start : span.end]]
            place = text.find(alone)
            counts["found"] += place >= 0
            if (expected := find_unchanged(segment, span, text)) is None:
                continue
            counts["same"] += 1
            for name, made in (("exact", aligned), ("attention", heads)):
                put = next(s for s in made.spans if s.opening == f"<a{n}>")
                counts[name] += (put.start, put.end) == expected
            counts["f"] += place >= 0 and (place, place + len(alone)) == expected
    return counts


def main(model, file, number="300"):
    opened = open_model(model)
    lines = [line for line, _ in zip(read_lines(Path(file)), range(int(number)), strict=False)]
    answers = ModelAnswers(opened)
    translator = answers.aligner.listening(opened.translator)
    found = translator.translate(lines)
    links = links_of([answers.aligner], found)
    texts = [translation.text for translation in found]
    print(  # noqa: T201
        "spans words | aligned: contiguous exact (attention) | found: placed exact | spans same"
    )
    for n_spans in (1, 3):
        for size in (1, 2, 4):
            draw = random.Random(n_spans * 10 + size)
            drawn = [
                (Segment(line, spans), text, own)
                for line, text, own in zip(lines, texts, links, strict=True)
                for _ in range(2)
                if (spans := spans_of(line, n_spans, size, draw)) is not None
            ]
            inner = {s.text[p.start : p.end] for s, _, _ in drawn for p in s.spans}
            alone = [translation.text for translation in opened.translator.translate(sorted(inner))]
            counts = measure_spans(
                *zip(*drawn, strict=True), dict(zip(sorted(inner), alone, strict=True))
            )
            total, same = counts["spans"], max(1, counts["same"])
            print(  # noqa: T201
                f"{n_spans:5} {size:5} | {counts['contiguous'] / total:19.1%} "
                f"{counts['exact'] / same:5.1%} ({counts['attention'] / same:9.1%}) | "
                f"{counts['found'] / total:13.1%} {counts['f'] / same:5.1%} | "
                f"{total:5} {counts['same']:4}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
