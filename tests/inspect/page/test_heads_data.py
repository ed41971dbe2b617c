import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from tformer_cli.heads.names import KINDS, HeadId, HeadLayout
from tformer_cli.heads.roles import METRICS
from tformer_cli.inspect.alignment.words import SpelledWords
from tformer_cli.inspect.capture.forced import AttentionMaps, HeadVectors
from tformer_cli.inspect.capture.search_tree import SearchNode, SearchTree
from tformer_cli.inspect.page import heads_data as render_html_module
from tformer_cli.inspect.page.heads_data import LARGEST_MAPS, bits_of, render_html
from tformer_cli.inspect.record import HeadsRecord, ModelSummary, PageExtras

HOSTILE = ("</script>", "<!--", "<img src=x onerror=alert(1)>", "{{data}}", "🙂", "שלום", "\u2028")


def named(head):
    """The head of a name."""
    kind, layer, number = head["id"].split(".")
    return HeadId(kind, int(layer), int(number))


FETCHING = ("src", "href", "srcset", "action", "poster", "data", "background")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def data_of(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


def test_the_page_holds_every_head_and_its_weights(record):
    data = data_of(render_html([record]))
    sentence = data["sentences"][0]
    assert [head["id"] for head in sentence["heads"]] == [str(head) for head in record.heads]
    for head in sentence["heads"]:
        numbers = np.frombuffer(base64.b64decode(head["weights"]), "<u2") / 65535
        expected = record.maps.weights(named(head))
        if named(head).kind == "dec":
            expected = expected[torch.ones_like(expected).tril().bool()]
        np.testing.assert_allclose(numbers, expected.flatten().numpy(), atol=1e-5)


def with_extras(record, search=None, width=4):
    """A record with random queries and keys, and words of which none is whole."""
    generator = torch.Generator().manual_seed(2)
    maps = record.captured
    places = [(kind, n) for kind in KINDS for n in range(len(maps.layers(kind)))]
    vectors = [
        {
            place: torch.randn(
                2, maps.layers(place[0])[place[1]].shape[side], width, generator=generator
            )
            for place in places
        }
        for side in (1, 2)
    ]
    words = [
        SpelledWords(pieces[:-1], tuple(range(len(pieces) - 1)))
        for pieces in (record.source_pieces, record.target_pieces)
    ]
    extras = PageExtras(
        source_words=words[0],
        target_words=words[1],
        vectors=HeadVectors(queries=vectors[0], keys=vectors[1]),
        search=search,
        search_pieces={2: "<s>", 7: HOSTILE[0], 3: "</s>"},
    )
    return replace(record, extras=extras)


def unpacked_vectors(text, n_queries):
    vectors = np.frombuffer(base64.b64decode(text), "<f2").reshape(-1, 4)
    return vectors[:n_queries], vectors[n_queries:]


def test_queries_and_keys_are_those_of_the_record(record):
    full = with_extras(record)
    (sentence,) = data_of(render_html([full]))["sentences"]
    assert set(sentence["vectors"]) == {str(head) for head in record.heads}
    for head in record.heads:
        place = head.kind, head.layer
        expected = [
            part[place][head.head]
            for part in (full.extras.vectors.queries, full.extras.vectors.keys)
        ]
        found = unpacked_vectors(sentence["vectors"][str(head)], len(expected[0]))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-3, atol=1e-3)
    assert sentence["sourceWords"] == {"texts": ["a", "b", "c", "d"], "ofToken": [0, 1, 2, 3]}


def test_where_room_is_short_the_heads_shown_first_have_their_vectors(record, monkeypatch):
    full = with_extras(record)
    whole = data_of(render_html([full]))["sentences"][0]["vectors"]
    first = next(iter(whole))
    assert first == str(record.first_head())
    monkeypatch.setattr(render_html_module, "LARGEST_VECTORS", 2 * len(whole[first]))
    kept = data_of(render_html([full]))["sentences"][0]["vectors"]
    assert 1 <= len(kept) < len(whole)
    assert list(kept.items()) == list(whole.items())[: len(kept)]


def test_a_search_is_a_tree_of_pieces_unless_it_is_too_large(record, monkeypatch):
    def node(parent, step, token, state, score=None):
        return SearchNode(
            parent=parent,
            step=step,
            token=token,
            log_probability=-step / 3,
            state=state,
            score=score,
        )

    nodes = (node(None, 0, 2, "kept"), node(0, 1, 7, "kept"), node(1, 2, 3, "finished", -0.5))
    tree = SearchTree(nodes=nodes, path=(0, 1, 2), beam_size=2, length_penalty=0.6)
    text = render_html([with_extras(record, tree)])
    found = data_of(text)["sentences"][0]["search"]
    assert [one["piece"] for one in found["nodes"]] == ["<s>", HOSTILE[0], "</s>"]
    assert found["nodes"][2] == {
        "parent": 1,
        "step": 2,
        "piece": "</s>",
        "logp": -0.6667,
        "state": "finished",
        "score": -0.5,
    }
    assert (found["path"], found["beamSize"]) == ([0, 1, 2], 2)
    monkeypatch.setattr(render_html_module, "MOST_NODES", 2)
    large = data_of(render_html([with_extras(record, tree)]))["sentences"][0]["search"]
    assert large == {"beamSize": 2, "lengthPenalty": 0.6, "count": 3}


def test_every_measure_has_a_plain_name_and_says_what_it_is(record):
    data = data_of(render_html([record]))
    assert list(data["metrics"]) == list(METRICS)
    for head in data["sentences"][0]["heads"]:
        metrics = record.metrics[named(head)]
        found = dict(zip(METRICS, head["metrics"], strict=True))
        assert {name: value for name, value in found.items() if value is not None} == {
            name: pytest.approx(value, rel=1e-3) for name, value in metrics.items()
        }
    labels = [measure["label"] for measure in data["metrics"].values()]
    assert len(set(labels)) == len(labels)
    for measure in data["metrics"].values():
        assert "_" not in measure["label"]
        assert len(measure["meaning"].split()) >= 4
        assert not measure["meaning"].endswith(".")


def test_the_page_fetches_nothing_and_says_so_to_the_browser(record):
    text = render_html([record])
    policy = (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    )
    assert f'http-equiv="Content-Security-Policy" content="{policy}"' in text
    assert set(re.findall(r"https?://[^\"' )]*", text)) == {"http://www.w3.org/2000/svg"}
    tags = Tags()
    tags.feed(text)
    assert not [name for _, attributes in tags.found for name in attributes if name in FETCHING]
    assert not re.search(r"@import|\burl\(|innerHTML|outerHTML|insertAdjacent|\beval\b", text)


def test_no_token_becomes_markup(make_record):
    plain, hostile = Tags(), Tags()
    plain.feed(render_html([make_record()]))
    text = render_html([make_record(source=HOSTILE, target=HOSTILE)])
    hostile.feed(text)
    assert hostile.found == plain.found
    assert data_of(text)["sentences"][0]["sourcePieces"] == [*HOSTILE, "</s>"]


def test_blank_lines_are_left_out_and_the_same_records_give_the_same_bytes(
    make_record, make_blank_record
):
    records = [make_blank_record(0), make_record(index=1)]
    assert [s["index"] for s in data_of(render_html(records))["sentences"]] == [1]
    assert render_html(records) == render_html([make_blank_record(0), make_record(index=1)])
    assert data_of(render_html([]))["sentences"] == []


def long_record(n_heads):
    n = 61
    generator = torch.Generator().manual_seed(1)
    maps = torch.rand(n_heads, n, n, generator=generator).softmax(dim=-1)
    causal = torch.rand(n_heads, n, n, generator=generator).tril()
    layout = HeadLayout(*(((n_heads,) * 6,) * 3))
    summary = ModelSummary(
        name="m", n_encoder_layers=6, n_decoder_layers=6, n_heads=n_heads, step=1
    )
    return HeadsRecord(
        index=0,
        model=summary,
        source="s",
        target="t",
        is_forced=True,
        score=None,
        source_pieces=("▁piece",) * n,
        target_pieces=("▁piece",) * n,
        input_pieces=("▁piece",) * n,
        maps=AttentionMaps(
            source_ids=(3,) * n,
            target_input_ids=(2,) * n,
            enc=(maps,) * 6,
            dec=(causal / causal.sum(-1, keepdim=True),) * 6,
            cross=(maps,) * 6,
            residuals=dict.fromkeys(layout, 0.0),
        ),
        heads=tuple(layout),
    )


@pytest.mark.parametrize(("n_heads", "bits"), [(8, 16), (16, 8)])
def test_a_pair_of_60_tokens_stays_below_a_megabyte_and_a_half(n_heads, bits):
    record = long_record(n_heads)
    text = render_html([record])
    assert len(text.encode()) < 1_500_000
    sentence = data_of(text)["sentences"][0]
    assert sentence["bits"] == bits == bits_of(record)
    packed = [head["weights"] for head in sentence["heads"]]
    assert sum(map(len, packed)) <= LARGEST_MAPS
    numbers = np.frombuffer(base64.b64decode(packed[0]), f"<u{bits // 8}") / (2**bits - 1)
    bound = 0.5 / (2**bits - 1) + 1e-9
    assert np.abs(numbers - record.maps.enc[0][0].flatten().numpy()).max() <= bound
