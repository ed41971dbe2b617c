"""Translates the texts, pages and documents of requests."""

import math
from collections.abc import Iterator, Sequence
from contextlib import aclosing, nullcontext
from typing import Any

from tformer_cli.documents.answers import links_of
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.documents.translating import Answer
from tformer_cli.documents.translating import Request as Line
from tformer_cli.plugins.serve.documents import SHORT, Reader
from tformer_cli.plugins.serve.languages import UNDETECTED, Languages, Way
from tformer_cli.plugins.serve.models import Versions
from tformer_cli.plugins.serve.site import Priority, Site, client_name
from tformer_cli.wording import is_blank

LINKED_LINES = 32
"""Lines aligned in one go, so that other requests need not wait for a whole document."""


async def guess_language(
    site: Site, languages: Languages, texts: Sequence[str], target: str
) -> tuple[str, float]:
    """Guesses the language of texts among those with a model into the target."""
    codes = [code for code in languages.codes if languages.way(code, target) is not None]
    guesses = await site.apart(site.detector.guesses, "\n".join(texts), codes)
    if guesses:
        return guesses[0]
    return (UNDETECTED if UNDETECTED in codes else (codes or [target])[0]), 0.0


async def translate_pages(site: Site, way: Way, texts: Sequence[str], deadline: float) -> Reader:
    """Translates HTML texts, equal lines only once; treats long ones as documents."""
    contents = [text.encode(errors="replace") for text in texts]
    is_long = sum(map(len, contents)) > SHORT
    place = site.documents.in_work.place(client_name()) if is_long else nullcontext()
    reading = site.documents.reading(
        "html", contents, ReadSettings(), deadline, is_short=not is_long
    )
    with place:
        async with reading as reader:
            await translate_document(site, way, reader, deadline, is_long=is_long)
    return reader


async def translate_document(
    site: Site, way: Way, reader: Reader, deadline: float, *, is_long: bool
) -> None:
    """Translates the lines of a reader, window by window."""
    options: dict[str, Any] = {"versions": {}}
    if is_long:
        options |= {"priority": "bulk", "has_place": True}
    lines = await reader.next([])
    while lines:
        answers = await translate_lines(site, way, lines, deadline, **options)
        # From now on like any long request that has begun
        options["is_admitted"], deadline = True, math.inf
        lines = await reader.next(answers)


async def translate_lines(
    site: Site,
    way: Way,
    lines: Sequence[Line],
    deadline: float,
    *,
    versions: Versions,
    **options: Any,  # noqa: ANN401 - of `Site.results`
) -> list[Answer]:
    """Translates lines, with word links where they are needed."""
    texts = [line.text for line in lines]
    if not way.models or not texts:
        return [Answer(line.text, None if line.needs_links else ()) for line in lines]
    needed = [n for n, line in enumerate(lines) if line.needs_links]
    settings = {**way.settings, "aligned": bool(needed) or None}
    results = site.results(
        way.models, "translate", texts, settings=settings, deadline=deadline, versions=versions,
        **options,
    )  # fmt: skip
    async with aclosing(results):
        translations = [translation async for translation in results]
    links = dict[int, Any]()
    candidates = (site.service.aligner(name, versions) for name in way.models)
    aligners = [aligner for aligner in candidates if aligner is not None]
    if needed and len(aligners) == len(way.models):
        codes = [way.settings.get(f"{side}_language") for side in ("source", "target")]
        source, target = (None if code is None else str(code) for code in codes)
        tokenizer = aligners[-1].tokenizer.for_languages(source, target)
        # Without a second pass, which would need torch
        for start in range(0, len(needed), LINKED_LINES):
            part = needed[start : start + LINKED_LINES]
            batch = [translations[n] for n in part]
            batch_links = await site.apart(
                links_of, aligners, batch, tokenizer=tokenizer, passes=False
            )
            links |= zip(part, batch_links, strict=True)
    return [
        Answer(translation.text, links.get(n) if line.needs_links else ())
        for n, (line, translation) in enumerate(zip(lines, translations, strict=True))
    ]


async def translate_texts(
    site: Site,
    way: Way,
    texts: Sequence[str],
    n_best: int,
    deadline: float,
    priority: Priority | None = None,
) -> list[list[str]]:
    """Translates texts line by line; returns up to `n_best` translations of each."""
    # Splitting a megabyte of text takes a while
    is_long = sum(map(len, texts)) > SHORT
    lines, parts = await site.apart(cut_texts, texts) if is_long else cut_texts(texts)
    ranked: Iterator[list[str]] = iter(())
    if way.models and parts:
        settings = {**way.settings, "n_best": n_best if n_best > 1 else None}
        results = site.results(
            way.models, "translate", parts, settings=settings, priority=priority, deadline=deadline
        )
        async with aclosing(results):
            ranked = iter([[text.text for text in result.hypotheses] async for result in results])
    return await site.apart(join_lines, lines, ranked) if is_long else join_lines(lines, ranked)


def cut_texts(texts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Returns the lines of each text, and a flat list of the lines to translate."""
    lines = [text.split("\n") for text in texts]
    return lines, [
        line.removesuffix("\r") for text_lines in lines for line in text_lines if has_words(line)
    ]


def join_lines(
    lines: Sequence[Sequence[str]], translations: Iterator[list[str]]
) -> list[list[str]]:
    """Puts the translations of lines in place; returns the ranked translations of each text."""
    translated = [
        [next(translations, [line]) if has_words(line) else [line] for line in text_lines]
        for text_lines in lines
    ]
    return [
        [join_ranked(text_lines, ranked, rank) for rank in range(max(map(len, ranked)))]
        for text_lines, ranked in zip(lines, translated, strict=True)
    ]


def join_ranked(lines: Sequence[str], translations: Sequence[Sequence[str]], rank: int) -> str:
    """Joins translations of one rank; a line with fewer alternatives uses its last."""
    chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in translations]
    ends = ["\r" if line.endswith("\r") else "" for line in lines]
    return "\n".join(text.removesuffix("\r") + end for text, end in zip(chosen, ends, strict=True))


def has_words(line: str) -> bool:
    """True if a line has something to translate, not only emoji and spaces."""
    return any(c.isascii() or c.isalnum() for c in line if not is_blank(c))
