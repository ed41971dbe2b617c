r"""The heads page: one HTML file that opens from the disk with the network cut.

Weights are fixed-point
numbers in base64, round(65535·A / `largest`) in 16 bits, where `largest` is 1 of shares: they are
within 7.7e-6 of A. A sentence whose maps would take more than `LARGEST_MAPS` so has 8 bits,
round(255·A / `largest`), within 2e-3. Of the decoder's
masked maps only the visible triangle is kept. Queries and keys are float16, and what else scores
are made of float32; of a sentence that has too many for `LARGEST_VECTORS`, those of the
heads that are shown first of each kind.

The page around the data is in `frame`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from html import escape
from importlib.resources import files
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.heads.names import KINDS, HeadId
from tformer_cli.heads.roles import METRICS
from tformer_cli.inspect.data import get_attributes
from tformer_cli.inspect.frame import SCRIPTS, fill_page, page_texts, report_texts
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import WIDE, SentenceView, View
from tformer_cli.inspect.views import VIEWS
from tformer_cli.inspect.weighting import ALPHA
from tformer_cli.settings import dataclass
from tformer_cli.show.document import Texts
from tformer_cli.show.html import block_style, render_blocks, render_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tformer_cli.inspect.capture.live import SearchTree
    from tformer_cli.inspect.capture.maps import HeadVectors, Weights

LARGEST_MAPS = 1_280_000  # Bytes of base64 that the maps of a sentence may take with 16 bits
LARGEST_VECTORS = 400_000  # Bytes of base64 that queries and keys of a sentence may take
LARGEST_WITH_VECTORS = 1_180_000  # Bytes of maps, queries and keys of a sentence together
MOST_NODES = 4000  # Nodes of a search that the page draws; a larger tree is omitted


def render_html(records: Sequence[HeadsRecord]) -> str:
    """Renders the page of some sentences; blank ones, and those without a head, are skipped."""
    weighting = records[0].weighting if records else ALPHA
    title = "Layers" if weighting.is_of_layers else "Attention heads"
    if weighting != ALPHA:
        title += f": {weighting.name}"
    return fill_page(title, heads_data([record for record in records if record.heads]))


class ShownRecord(HeadsRecord):
    """A record that a notebook shows as its page."""

    def _repr_html_(self) -> str:
        """The page of the heads in a frame: its style and script stay inside."""
        return notebook_page([self])

    def _repr_svg_(self) -> str | None:
        return VIEWS["heads"].figure(self) if self.heads else None


def notebook_page(records: Sequence[HeadsRecord]) -> str:
    """HTML of records for a notebook: their page, if one is not blank."""
    return framed_view(VIEWS["heads"], records)


def frame_page(page: str) -> str:
    """Puts a page into a frame for a notebook."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts allow-downloads" '
        'style="width: 100%; height: 720px; border: 0"></iframe>'
    )


def heads_data(records: Sequence[HeadsRecord]) -> dict[str, Any]:
    weighting = records[0].weighting if records else ALPHA
    return {
        "model": vars(records[0].model) if records else None,
        **page_texts(weighting),
        "sentences": [_sentence(record) for record in records],
    }


SENTENCE = (
    "index source target=shown_target isForced=is_forced score rank isLive=is_live "
    "residual=captured.residual largest sourcePieces=source_pieces targetPieces=target_pieces "
    "inputPieces=input_pieces rare=rare.positions rareReason=rare.reason"
)


def bits_of(record: HeadsRecord) -> int:
    cells = sum(_visible(record, head).size for head in record.heads)
    return 16 if cells * 2 * 4 / 3 <= LARGEST_MAPS else 8


def _sentence(record: HeadsRecord) -> dict[str, Any]:
    bits = bits_of(record)
    heads = [_head(record, head, bits) for head in record.heads]
    return {
        **get_attributes(record, SENTENCE),
        "bits": bits,
        "heads": heads,
        "first": record.heads.index(record.first_head()) if record.heads else None,
        "links": [] if record.aligned is None else sorted(record.aligned.links),
        "isRecurrent": record.model.n_decoder_layers > 0 and not record.captured.dec,
    } | _extras(record, sum(len(head["weights"]) for head in heads))


def _extras(record: HeadsRecord, n_map_bytes: int) -> dict[str, Any]:
    extras = record.extras
    if extras is None:
        return {}
    data: dict[str, Any] = {
        f"{side}Words": get_attributes(words, "texts ofToken=of_token")
        for side, words in (("source", extras.source_words), ("target", extras.target_words))
    }
    if record.weighting == ALPHA:
        data["vectors"] = _vectors(record, extras.vectors, n_map_bytes)
        terms = {
            str(head): _terms(extras.vectors, head)
            for head in record.heads
            if str(head) in data["vectors"]
        }
        if any(terms.values()):
            data |= {"terms": terms, "formulas": extras.vectors.formulas}
    if record.captured.segment:
        data |= get_attributes(record.captured, "segment memory")
    if extras.search is not None:
        data["search"] = _search(extras.search, extras.search_pieces)
    return data


def _vectors(record: HeadsRecord, vectors: HeadVectors, n_map_bytes: int) -> dict[str, str]:
    """Queries, then keys, of as many heads as there is room for; see `HeadsRecord.order_heads`."""
    room = min(LARGEST_VECTORS, LARGEST_WITH_VECTORS - n_map_bytes)
    packed: dict[str, str] = {}
    for head in _by_worth(record):
        queries, keys = (part[head.kind, head.layer] for part in (vectors.queries, vectors.keys))
        both = np.concatenate((queries[head.head], keys[head.head]))
        with np.errstate(all="ignore"):  # beyond float16 there is infinity
            text = _base64(both.astype("<f2").tobytes())
        room -= len(text) + sum(len(str(term)) for term in _terms(vectors, head).values())
        if room < 0:
            break
        packed[str(head)] = text
    return packed


def _terms(vectors: HeadVectors, head: HeadId) -> dict[str, str | float]:
    """How a head's products become scores, where it is not by 1 / √E only."""
    place = head.kind, head.layer
    terms: dict[str, str | float] = {}
    if place in vectors.factors:
        terms["factor"] = vectors.factors[place]
    for name, parts in (("c", vectors.similarity), ("b", vectors.positions)):
        if place in parts:
            terms[name] = _base64(parts[place][head.head].astype("<f4").tobytes())
    return terms


def _by_worth(record: HeadsRecord) -> list[HeadId]:
    """The heads of a record: the first of each kind, then the second, and so on."""
    ordered = [record.order_heads(kind) for kind in reversed(KINDS)]
    return [head for rank in zip_longest(*ordered) for head in rank if head is not None]


def _search(tree: SearchTree, pieces: Mapping[int, str]) -> dict[str, Any]:
    """A tree as columns; of one with more nodes than can be drawn, only how many there are."""
    data = get_attributes(tree, "beamSize=beam_size lengthPenalty=length_penalty")
    data["count"] = len(tree.nodes)
    if len(tree.nodes) > MOST_NODES:
        return data
    return data | {
        "nodes": [
            {
                "parent": node.parent,
                "step": node.step,
                "piece": pieces[node.token],
                "logp": round(node.log_probability, 4),
                "state": node.state,
                "score": None if node.score is None else round(node.score, 4),
            }
            for node in tree.nodes
        ],
        "path": tree.path,
    }


def _head(record: HeadsRecord, head: HeadId, bits: int) -> dict[str, Any]:
    metrics = record.metrics[head]
    return {
        "id": str(head),  # with its kind, its layer and its number
        "role": record.role(head),
        # in the order of `METRICS`, as names would be more than the numbers
        "metrics": [float(f"{metrics[name]:.4g}") if name in metrics else None for name in METRICS],
        "weights": _pack_weights(_visible(record, head), bits),
    }


def _visible(record: HeadsRecord, head: HeadId) -> Weights:
    shades = record.shades(head)
    if head.kind != "dec":
        return shades
    visible: Weights = shades[np.tri(*shades.shape) > 0]
    return visible


def _pack_weights(weights: Weights, bits: int) -> str:
    numbers = np.rint(weights.astype(np.float64) * (2**bits - 1))
    with np.errstate(all="ignore"):  # of a model with broken weights
        return _base64(numbers.astype(f"<u{bits // 8}").tobytes())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


TITLE = "Inspection report"
SAMPLE = "sample-report.json"  # Name of the report that ships with the package, among the guides


@dataclass(frozen=True, kw_only=True)
class SentenceReport:
    """All of the inspection of one sentence that is not blank."""

    heads: HeadsRecord  # Its tokens, its maps and the heads that are shown
    views: Mapping[str, Any]  # Records of its views, by the view's name


@dataclass(frozen=True, kw_only=True)
class Report:
    """A model and some sentences."""

    model_hash: str  # SHA-256 of the model's weights file
    views: Mapping[str, Any]  # Records of views of the model, by the view's name
    sentences: tuple[SentenceReport, ...]  # The sentences; at least one

    @property
    def html(self) -> str:
        """The page, which needs no network."""
        return render_report(self)

    def __str__(self) -> str:
        return "\n".join(str(sentence.heads) for sentence in self.sentences)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {[sentence.heads for sentence in self.sentences]}>"

    def _repr_html_(self) -> str:
        return frame_page(self.html)


def render_report(report: Report) -> str:
    return _page(TITLE, report_data(report), _templates(report))


def render_view(view: View[Any], records: Iterable[Any], options: object) -> str:
    shown = [record for record in records if not is_blank(record)]
    if (page := view.page(shown, options)) is not None:
        return page
    if not has_tab(view):
        return _page_of_blocks(view, shown, options)
    data = report_texts()
    if isinstance(view, SentenceView):
        data |= heads_data([replace(record.sentence, heads=(), extras=None) for record in shown])
        for of_sentence, record in zip(data["sentences"], shown, strict=True):
            of_sentence["views"] = {view.name: view.tab(record, options, is_alone=True)}
    else:
        (record,) = shown
        # A view of several sentences has their maps on its page, after its own tab
        data |= heads_data(getattr(record, "sentences", ())) | {"tab": view.name}
        if (model := getattr(record, "model", None)) is not None:
            data["model"] = vars(model)
        data["views"] = {view.name: view.tab(record, options, is_alone=True)}
    return _page(view.title, data)


def is_blank(record: Any) -> bool:  # noqa: ANN401 - the view's own
    """True if a record is that of a blank line."""
    return getattr(getattr(record, "sentence", record), "maps", record) is None


def has_tab(view: View[Any]) -> bool:
    return bool(view.script) or f"tab_{view.name}.js" in SCRIPTS


def _page_of_blocks(view: View[Any], records: Iterable[Any], options: object) -> str:
    groups = [
        (
            record.sentence.source if isinstance(view, SentenceView) else "",
            _shown_blocks(view, record, options),
        )
        for record in records
    ]
    return render_page(view.title, groups)


def _shown_blocks(view: View[Any], record: Any, options: object) -> str:  # noqa: ANN401
    """Renders what a terminal shows, and the figure if it is another: drawn, or of blocks."""
    blocks = [*view.blocks(record, options, WIDE)]
    if type(view).figure_blocks is not View.figure_blocks:  # the sentences are there
        blocks += (b for b in view.figure_blocks(record, options) if not isinstance(b, Texts))
    figure = view.figure(record, options) if type(view).figure is not View.figure else ""
    return render_blocks(blocks, figure)


def printed_view(view: View[Any], records: Iterable[Any], options: object = None) -> str:
    """Text of a view's records, as its command shows them, or as their own where it has none."""
    from functools import partial

    from tformer_cli.show.terminal import plain_text_of

    shown = list(records)
    try:
        return plain_text_of(
            partial(view.text, record=record, options=options or view.Options()) for record in shown
        )
    except NotImplementedError:  # only a report has it
        return "\n".join(map(str, shown))


def framed_view(view: View[Any], records: Iterable[Any], options: object = None) -> str:
    """HTML of a view's records for a notebook: their page, if a sentence is not blank."""
    shown = list(records)
    if isinstance(view, SentenceView) and all(record.sentence.maps is None for record in shown):
        return "<p>a blank line has no attention maps</p>"
    return frame_page(render_view(view, shown, options or view.Options()))


def sample_page() -> str:
    """Renders the report that ships with the package in the current page, without a model.

    Its numbers are those of a quickstart model and were written by
    ``python tests/inspect/write_sample_report.py runs/quickstart``.
    """
    stored = files("tformer_cli").joinpath("guide", SAMPLE).read_text(encoding="utf-8")
    return _page(TITLE, json.loads(stored) | report_texts())


def report_data(report: Report) -> dict[str, Any]:
    shown = [sentence for sentence in report.sentences if sentence.heads.heads]
    data = heads_data([sentence.heads for sentence in shown])
    data |= {"modelHash": report.model_hash, "views": _tabs(report.views)} | report_texts()
    for of_heads, sentence in zip(data["sentences"], shown, strict=True):
        of_heads["views"] = _tabs(sentence.views)
    return data


def _tabs(records: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: VIEWS[name].tab(record, None, is_alone=False)
        for name, record in records.items()
        if has_tab(VIEWS[name])
    }


def _templates(report: Report) -> str:
    """Renders the tabs of views that have no script, for `templates.js`."""
    shown = [sentence for sentence in report.sentences if sentence.heads.heads]
    parts = []
    for place, views in (("", report.views), *((str(n), s.views) for n, s in enumerate(shown))):
        for name, record in views.items():
            view = VIEWS[name]
            if not has_tab(view):
                blocks = "".join(
                    _shown_blocks(view, part, view.Options())
                    for part in (record if isinstance(record, list) else [record])
                )
                parts.append(
                    f'<template data-view="{escape(name)}" data-title="{escape(view.title)}" '
                    f'data-sentence="{place}">{blocks}</template>\n'
                )
    body = "".join(parts)
    return f"<style>\n{block_style(body)}</style>\n{body}" if body else ""


def _page(title: str, data: Mapping[str, Any], templates: str = "") -> str:
    scripts = [view.script for view in VIEWS.values() if view.script]
    return fill_page(title, data, scripts, templates)
