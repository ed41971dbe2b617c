import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from tformer_cli.inspection.capture import AttentionMaps
from tformer_cli.inspection.heads import HeadId, HeadLayout
from tformer_cli.inspection.record import HeadsRecord, ModelSummary
from tformer_cli.inspection.render_html import LARGEST_MAPS, bits_of, render_html

HOSTILE = ("</script>", "<!--", "<img src=x onerror=alert(1)>", "{{data}}", "🙂", "שלום", "\u2028")


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
        expected = record.maps.weights(HeadId(head["kind"], head["layer"], head["head"]))
        if head["kind"] == "dec":
            expected = expected[torch.ones_like(expected).tril().bool()]
        np.testing.assert_allclose(numbers, expected.flatten().numpy(), atol=1e-5)


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
