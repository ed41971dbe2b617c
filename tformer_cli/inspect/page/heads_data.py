r"""The heads page: one HTML file that opens from the disk with the network cut.

The page comes from `page_source`; here the data of the heads are made. Weights are fixed-point
numbers in base64, round(65535·A / `largest`) in 16 bits, where `largest` is 1 of shares: they are
within 7.7e-6 of A. A sentence whose maps would take more than `LARGEST_MAPS` so has 8 bits,
round(255·A / `largest`), within 2e-3. Of the decoder's
masked maps only the visible triangle is kept. Queries and keys are float16, and what else scores
are made of float32; of a sentence that has too many for `LARGEST_VECTORS`, those of the
heads that are shown first of each kind.
"""

import base64
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from tformer_cli.heads.names import KINDS, HeadId
from tformer_cli.heads.roles import METRICS, ROLES
from tformer_cli.inspect.alignment.words import SpelledWords
from tformer_cli.inspect.capture.forced import HeadVectors
from tformer_cli.inspect.capture.search_tree import SearchTree
from tformer_cli.inspect.page.page_source import fill_page
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.weighting.weighting import ALPHA, Weighting
from tformer_cli.show.palette import DARK_RAMPS, HUES, LIGHT_RAMPS

LARGEST_MAPS = 1_280_000
"""Bytes of base64 that the maps of a sentence may take with 16 bits."""
LARGEST_VECTORS = 400_000
"""Bytes of base64 that queries and keys of a sentence may take."""
LARGEST_WITH_VECTORS = 1_180_000
"""Bytes of base64 that maps, queries and keys of a sentence may take together."""
MOST_NODES = 4000
"""Nodes of a search that the page draws; a larger tree is omitted."""


def render_html(records: Sequence[HeadsRecord]) -> str:
    """Renders the page of some sentences; blank ones, and those without a head, are skipped."""
    weighting = records[0].weighting if records else ALPHA
    title = "Layers" if weighting.is_of_layers else "Attention heads"
    if weighting is not ALPHA:
        title += f": {weighting.name}"
    return fill_page(title, heads_data([record for record in records if record.heads]))


def heads_data(records: Sequence[HeadsRecord]) -> dict[str, Any]:
    """Makes the data of the heads, as `page/data.js` reads them."""
    weighting = records[0].weighting if records else ALPHA
    return {
        "model": vars(records[0].model) if records else None,
        **page_texts(weighting),
        "sentences": [_sentence(record) for record in records],
    }


def page_texts(weighting: Weighting) -> dict[str, Any]:
    """Makes what a page says of any model and sentence."""
    return {
        "weighting": {
            "name": weighting.name,
            "meaning": weighting.meaning,
            "source": weighting.source,
            "sums": weighting.sums,
            "residual": weighting.residual,
            "isOfLayers": weighting.is_of_layers,
            "isShare": weighting.is_share,
        },
        "conventions": weighting.conventions,
        "kinds": weighting.kind_names,
        "metrics": {name: measure._asdict() for name, measure in METRICS.items()},
        "roles": {rule.role: rule.meaning for rule in ROLES},
        "ramps": {"light": LIGHT_RAMPS, "dark": DARK_RAMPS},
        "hues": HUES,
    }


def bits_of(record: HeadsRecord) -> int:
    """Chooses how many bits a weight of a sentence has on the page."""
    cells = sum(_visible(record, head).numel() for head in record.heads)
    return 16 if cells * 2 * 4 / 3 <= LARGEST_MAPS else 8


def _sentence(record: HeadsRecord) -> dict[str, Any]:
    bits = bits_of(record)
    heads = [_head(record, head, bits) for head in record.heads]
    return {
        "index": record.index,
        "source": record.source,
        "target": record.target if record.probability is None else record.labeled,
        "isForced": record.is_forced,
        "score": record.score,
        "rank": record.rank,
        "isLive": record.mode == "live",
        "residual": record.captured.residual,
        "largest": record.largest,
        "sourcePieces": record.source_pieces,
        "targetPieces": record.target_pieces,
        "inputPieces": record.input_pieces,
        "rare": record.rare.positions,
        "rareReason": record.rare.reason,
        "bits": bits,
        "heads": heads,
        "first": record.heads.index(record.first_head()) if record.heads else None,
        "links": [] if record.aligned is None else sorted(record.aligned.links),
        "isRecurrent": record.model.n_decoder_layers > 0 and not record.captured.dec,
    } | _extras(record, sum(len(head["weights"]) for head in heads))


def _extras(record: HeadsRecord, n_map_bytes: int) -> dict[str, Any]:
    """Data that the page shows besides maps, of a record that has it."""
    extras = record.extras
    if extras is None:
        return {}
    data: dict[str, Any] = {
        "sourceWords": _words(extras.source_words),
        "targetWords": _words(extras.target_words),
    }
    if record.weighting is ALPHA:
        data["vectors"] = _vectors(record, extras.vectors, n_map_bytes)
        terms = {
            str(head): _terms(extras.vectors, head)
            for head in record.heads
            if str(head) in data["vectors"]
        }
        if any(terms.values()):
            data |= {"terms": terms, "formulas": extras.vectors.formulas}
    if record.captured.segment:
        data |= {"segment": record.captured.segment, "memory": record.captured.memory}
    if extras.search is not None:
        data["search"] = _search(extras.search, extras.search_pieces)
    return data


def _words(words: SpelledWords) -> dict[str, Any]:
    return {"texts": words.texts, "ofToken": words.of_token}


def _vectors(record: HeadsRecord, vectors: HeadVectors, n_map_bytes: int) -> dict[str, str]:
    """Queries, then keys, of as many heads as there is room for; see `HeadsRecord.ordered`."""
    room = min(LARGEST_VECTORS, LARGEST_WITH_VECTORS - n_map_bytes)
    packed: dict[str, str] = {}
    for head in _by_worth(record):
        queries, keys = (part[head.kind, head.layer] for part in (vectors.queries, vectors.keys))
        both = torch.cat((queries[head.head], keys[head.head]))
        text = _base64(both.half().numpy().astype("<f2").tobytes())
        room -= len(text) + sum(len(str(one)) for one in _terms(vectors, head).values())
        if room < 0:
            break
        packed[str(head)] = text
    return packed


def _terms(vectors: HeadVectors, head: HeadId) -> dict[str, str | float]:
    """What makes the scores of a head of its products, where it is not 1 / √E alone."""
    place = head.kind, head.layer
    terms: dict[str, str | float] = {}
    if place in vectors.factors:
        terms["factor"] = vectors.factors[place]
    for name, parts in (("c", vectors.similarity), ("b", vectors.positions)):
        if place in parts:
            terms[name] = _base64(parts[place][head.head].numpy().astype("<f4").tobytes())
    return terms


def _by_worth(record: HeadsRecord) -> list[HeadId]:
    """The heads of a record: the first of each kind, then the second, and so on."""
    ordered = [record.ordered(kind) for kind in reversed(KINDS)]
    return [head for rank in zip_longest(*ordered) for head in rank if head is not None]


def _search(tree: SearchTree, pieces: Mapping[int, str]) -> dict[str, Any]:
    """A tree as columns; of one with more nodes than can be drawn, only how many there are."""
    data: dict[str, Any] = {
        "beamSize": tree.beam_size,
        "lengthPenalty": tree.length_penalty,
        "count": len(tree.nodes),
    }
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
        "weights": _packed(_visible(record, head), bits),
    }


def _visible(record: HeadsRecord, head: HeadId) -> torch.Tensor:
    """The shades that are stored: all, or those of the visible triangle."""
    shades = record.shades(head)
    if head.kind != "dec":
        return shades
    rows, columns = torch.tril_indices(*shades.shape)
    return shades[rows, columns]


def _packed(weights: torch.Tensor, bits: int) -> str:
    numbers = (weights.double() * (2**bits - 1)).round().int().flatten().numpy()
    return _base64(numbers.astype(f"<u{bits // 8}").tobytes())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
