"""The sample report: its data fit the page of now, and its numbers are those of a model."""

import base64
import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from shutil import which

import numpy as np
import pytest
import torch

from tests.inspect.cases import stored_model
from tests.oracles.unpacked import page_data, unpack_json
from tformer_cli.heads.names import KINDS, HeadId, HeadLayout, head_layout
from tformer_cli.heads.roles import METRICS
from tformer_cli.inspect import pages as render_html_module
from tformer_cli.inspect.alignment import SpelledWords
from tformer_cli.inspect.capture.live import SearchNode, SearchTree
from tformer_cli.inspect.capture.maps import AttentionMaps, HeadVectors
from tformer_cli.inspect.frame import DATA_SLOT, SCRIPTS, empty_page, fill_page, report_texts
from tformer_cli.inspect.pages import (
    LARGEST_MAPS,
    SAMPLE,
    bits_of,
    render_html,
    render_report,
    report_data,
    sample_page,
)
from tformer_cli.inspect.record import HeadsRecord, ModelSummary, PageExtras
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.views.step import COMPONENTS
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

HOSTILE = ("</script>", "<!--", "<img src=x onerror=alert(1)>", "{{data}}", "🙂", "שלום", "\u2028")


def head_named(head):
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


def test_the_page_holds_every_head_and_its_weights(record):
    data = page_data(render_html([record]))
    sentence = data["sentences"][0]
    assert [head["id"] for head in sentence["heads"]] == [str(head) for head in record.heads]
    for head in sentence["heads"]:
        numbers = np.frombuffer(base64.b64decode(head["weights"]), "<u2") / 65535
        expected = record.maps.weights(head_named(head))
        if head_named(head).kind == "dec":
            expected = expected[np.tri(*expected.shape, dtype=bool)]
        np.testing.assert_allclose(numbers, expected.flatten(), atol=1e-5)


def with_extras(record, search=None, width=4):
    """A record with random queries and keys, and words of which none is whole."""
    generator = torch.Generator().manual_seed(2)
    maps = record.captured
    places = [(kind, n) for kind in KINDS for n in range(len(maps.layers(kind)))]
    vectors = [
        {
            place: torch.randn(
                2, maps.layers(place[0])[place[1]].shape[side], width, generator=generator
            ).numpy()
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
    (sentence,) = page_data(render_html([full]))["sentences"]
    assert set(sentence["vectors"]) == {str(head) for head in record.heads}
    for head in record.heads:
        place = head.kind, head.layer
        expected = [
            part[place][head.head]
            for part in (full.extras.vectors.queries, full.extras.vectors.keys)
        ]
        vectors = unpacked_vectors(sentence["vectors"][str(head)], len(expected[0]))
        for ours, theirs in zip(vectors, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert sentence["sourceWords"] == {"texts": ["a", "b", "c", "d"], "ofToken": [0, 1, 2, 3]}


def test_where_room_is_short_the_heads_shown_first_have_their_vectors(record, monkeypatch):
    full = with_extras(record)
    whole = page_data(render_html([full]))["sentences"][0]["vectors"]
    first = next(iter(whole))
    assert first == str(record.first_head())
    monkeypatch.setattr(render_html_module, "LARGEST_VECTORS", 2 * len(whole[first]))
    kept = page_data(render_html([full]))["sentences"][0]["vectors"]
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
    search = page_data(text)["sentences"][0]["search"]
    assert [token["piece"] for token in search["nodes"]] == ["<s>", HOSTILE[0], "</s>"]
    assert search["nodes"][2] == {
        "parent": 1,
        "step": 2,
        "piece": "</s>",
        "logp": -0.6667,
        "state": "finished",
        "score": -0.5,
    }
    assert (search["path"], search["beamSize"]) == ([0, 1, 2], 2)
    monkeypatch.setattr(render_html_module, "MOST_NODES", 2)
    large = page_data(render_html([with_extras(record, tree)]))["sentences"][0]["search"]
    assert large == {"beamSize": 2, "lengthPenalty": 0.6, "count": 3}


def test_every_measure_has_a_plain_name_and_says_what_it_is(record):
    data = page_data(render_html([record]))
    assert list(data["metrics"]) == list(METRICS)
    for head in data["sentences"][0]["heads"]:
        metrics = record.metrics[head_named(head)]
        measures = dict(zip(METRICS, head["metrics"], strict=True))
        assert {name: value for name, value in measures.items() if value is not None} == {
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
    assert page_data(text)["sentences"][0]["sourcePieces"] == [*HOSTILE, "</s>"]


def test_blank_lines_are_left_out_and_the_same_records_give_the_same_bytes(
    make_record, make_blank_record
):
    records = [make_blank_record(0), make_record(index=1)]
    assert [s["index"] for s in page_data(render_html(records))["sentences"]] == [1]
    assert render_html(records) == render_html([make_blank_record(0), make_record(index=1)])
    assert page_data(render_html([]))["sentences"] == []


def long_record(n_heads):
    n = 61
    generator = torch.Generator().manual_seed(1)
    maps = torch.rand(n_heads, n, n, generator=generator).softmax(dim=-1).numpy()
    causal = torch.rand(n_heads, n, n, generator=generator).tril().numpy()
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
            dec=(causal / causal.sum(-1, keepdims=True),) * 6,
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
    sentence = page_data(text)["sentences"][0]
    assert sentence["bits"] == bits == bits_of(record)
    packed = [head["weights"] for head in sentence["heads"]]
    assert sum(map(len, packed)) <= LARGEST_MAPS
    numbers = np.frombuffer(base64.b64decode(packed[0]), f"<u{bits // 8}") / (2**bits - 1)
    bound = 0.5 / (2**bits - 1) + 1e-9
    assert np.abs(numbers - record.maps.enc[0][0].flatten()).max() <= bound


COMMENT = re.compile(r"\s*(//|/\*)| \*")


PAGE = files("tformer_cli.inspect").joinpath("page")


def test_every_part_is_on_the_page_once_and_only_the_slot_for_data_is_left():
    text = empty_page("A title")
    assert sorted(SCRIPTS) == sorted(p.name for p in PAGE.iterdir() if p.name.endswith(".js"))
    for name in (*SCRIPTS, "style.css"):
        lines = PAGE.joinpath(name).read_text(encoding="utf-8").splitlines()
        code = [line.strip() for line in lines if line.strip() and not COMMENT.match(line)]
        if name.endswith(".css"):  # blanks at its braces and semicolons go
            assert text.replace(" ", "").count("\n".join(code).replace(" ", "")) == 1
        else:
            assert text.count("\n".join(code)) == 1
        assert not [line for line in code if line.count("`") % 2]  # no text goes over a line's end
    assert re.findall(r"\{\{\w+\}\}", text) == [DATA_SLOT]
    assert "<title>A title</title>" in text


def test_data_cannot_end_their_element_nor_stand_in_for_a_slot():
    hostile = {"text": "</script><!--{{data}}{{script}}&\u2028\u2029\udc80"}
    text = fill_page("t", hostile)
    content = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    assert json.loads(content)["text"] == "</script><!--{{data}}{{script}}&\u2028\u2029?"
    assert not re.search("[<>&\u2028\u2029]", content)


def test_ids_are_unique_and_those_that_the_script_asks_for_are_there():
    frame = PAGE.joinpath("page.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([\w-]+)"', frame)
    assert len(ids) == len(set(ids))
    script = "".join(PAGE.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert set(re.findall(r'byId\("([\w-]+)"\)', script)) <= set(ids)
    labeled = re.findall(r'aria-(?:labeledby|controls)="([\w-]+)"', frame)
    assert set(labeled) - {"tab-heads"} <= set(ids)  # the tab is made by the script


@pytest.mark.skipif(which("node") is None, reason="there is no node to read JavaScript with")
def test_the_script_is_one_that_parses(tmp_path):
    script = re.search(r"<script>\n(.*)</script>", empty_page("t"), re.DOTALL)[1]
    path = tmp_path / "page.js"
    path.write_text(script, encoding="utf-8")
    subprocess.run(["node", "--check", path], check=True)


LINES = ["A man sleeps in the snow.", "", "Two dogs."]


@pytest.fixture(scope="module")
def report(model):
    return inspect_report(model, LINES, device="cpu")


@pytest.fixture(scope="module")
def data(report):
    return unpack_json(page_data(render_report(report)))


def test_the_same_report_gives_the_same_bytes(report, model):
    assert render_report(report) == render_report(inspect_report(model, LINES, device="cpu"))


def test_blank_lines_are_left_out_and_every_tab_has_its_data(data):
    assert [sentence["index"] for sentence in data["sentences"]] == [0, 2]
    for sentence in data["sentences"]:
        views = sentence["views"]
        assert [step["head"].split(".")[0] for step in views["step"]] == ["cross", "dec", "enc"]
        pieces = [position["piece"] for position in views["logits"]["positions"]]
        assert pieces == sentence["targetPieces"]
        assert set(views["ablation"]["effects"]) == {head["id"] for head in sentence["heads"]}


def test_walk_throughs_keep_the_first_components_and_all_words(report, data):
    for record, walk in zip(
        report.sentences[0].views["step"], data["sentences"][0]["views"]["step"], strict=True
    ):
        assert (walk["row"], walk["token"]) == (record.row, record.token)
        for step, shown in zip(record.steps, walk["steps"], strict=True):
            tables = [t for t in step.tables if not t.is_detail and t.name != "attention"]
            for table, kept in zip(tables, shown["tables"], strict=True):
                width = table.values.shape[1] if table.columns else COMPONENTS
                expected = table.values[:, :width].numpy()
                values = np.array(
                    [[-np.inf if v is None else v for v in row] for row in kept["values"]]
                )
                np.testing.assert_allclose(values, expected, atol=6e-5)
                # Examples in words have three places, of the numbers as they are
                pairs = zip(values.flat, expected.flat, strict=True)
                assert all(f"{a:.3f}".strip("-") == f"{b:.3f}".strip("-") for a, b in pairs)
                assert kept["width"] == table.values.shape[1]


def test_logits_are_those_of_the_record(report, data):
    places = data["sentences"][0]["views"]["logits"]["positions"]
    for position, shown in zip(report.sentences[0].views["logits"].positions, places, strict=True):
        assert shown["probability"] == pytest.approx(position.chosen.probability, abs=6e-5)
        assert shown["rank"] == position.rank
        assert [top["piece"] for top in shown["top"]] == [top.piece for top in position.top]
        assert [layer["rank"] for layer in shown["lens"]] == [r.rank for r in position.lens]


def test_shares_of_the_flow_are_near_and_rows_sum_to_one(report, data):
    flows = report.sentences[0].views["flow"].flows
    shown = data["sentences"][0]["views"]["flow"]
    assert list(shown["names"].values()) == ["ALTI+", "attention rollout"]
    assert shown["first"] == "alti"
    for method, flow in flows.items():
        for place, position in enumerate(shown["positions"]):
            row = np.concatenate([position[method][name] for name in ("source", "prefix")])
            expected = np.concatenate((flow.source[place], flow.prefix[place, : place + 1]))
            assert np.abs(row - expected).max() <= 0.5 / 127 + 1e-6
            assert row.sum() == pytest.approx(1, abs=len(row) * 0.5 / 127)
            assert position[method]["source_share"] == pytest.approx(
                flow.source_shares[place], abs=2e-5
            )


def test_position_vectors_are_near(report, data):
    table = report.views["positions"].tables[0]
    shown = data["views"]["positions"]["tables"][0]
    largest = table.table.abs().max().item()
    np.testing.assert_allclose(shown["table"], table.table.numpy(), atol=largest / 254 + 1e-9)
    assert shown["by_offset"][0]["mean"] == pytest.approx(
        table.squared_norms.mean().item(), rel=1e-4
    )


def test_without_ablation_its_tab_has_no_data(model):
    found = inspect_report(
        model, LINES[:1], device="cpu", options=ReportOptions(heads=("enc",), ablation=False)
    )
    (sentence,) = unpack_json(page_data(render_report(found)))["sentences"]
    assert "ablation" not in sentence["views"]
    assert [step["head"].split(".")[0] for step in sentence["views"]["step"]] == ["enc"]


def test_the_loss_without_a_head_is_that_of_one_pass_with_it_off(model, report):
    from tformer_cli.artifacts.model_directory import load_model_directory
    from tformer_cli.heads.gates import heads_off
    from tformer_cli.plugins.instruments.views.logits import layer_logits
    from tformer_cli.runtime import resolve_device

    transformer = load_model_directory(model, resolve_device("cpu")).model
    maps, ablation = report.sentences[0].heads.captured, report.sentences[0].views["ablation"]

    def loss():
        logits, _ = layer_logits(transformer, maps.source_ids, maps.target_input_ids)
        rows = logits.double().log_softmax(dim=-1)
        return -sum(rows[i, t].item() for i, t in enumerate(maps.target_ids)) / len(rows)

    assert ablation.loss == pytest.approx(loss(), abs=1e-5)
    assert list(ablation.effects) == list(head_layout(transformer))
    for head in (HeadId("enc", 1, 0), HeadId("cross", 0, 1)):
        with heads_off(transformer, [head]):
            without = loss()
        assert ablation.effects[head] == pytest.approx(without - loss(), abs=1e-5)


@pytest.mark.long
def test_a_report_of_60_tokens_and_144_heads_stays_below_1600_kilobytes(tmp_path):
    lines = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]
    tokenizer = train_tokenizer(lines * 3, TokenizerConfig(vocab_size=300))
    config = ModelConfig(
        d_model=64, n_heads=8, d_ff=64, n_encoder_layers=6, n_decoder_layers=6, max_positions=80
    )
    torch.manual_seed(3)
    path = stored_model(tmp_path / "model", Transformer(config, tokenizer.vocab_size), tokenizer)
    words = ["a man"] * 30
    report = inspect_report(path, [" ".join(words)], targets=[" ".join(words)], device="cpu")
    (sentence,) = report.sentences
    assert len(sentence.heads.source_pieces) == len(sentence.heads.target_pieces) == 61
    text = render_report(report)
    assert unpack_json(page_data(text))["sentences"][0]["bits"] == 16
    # 61 position vectors of a base model's 512 dimensions would be this much larger.
    assert len(text.encode()) + 61 * (512 - 64) * 4 / 3 < 1_600_000


LARGEST = 150_000


@pytest.fixture(scope="module")
def stored():
    return files("tformer_cli").joinpath("guide", SAMPLE).read_bytes()


def shape_of(data):
    """The names that data have, however many items their lists have."""
    if isinstance(data, dict):
        return {name: shape_of(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        shapes = [shape_of(entry) for entry in data if isinstance(entry, dict)]
        # a list that is empty in one item may hold something in another
        return [
            {name: next(filter(None, (item.get(name) for item in shapes)), None) for name in item}
            for item in shapes[:1]
            if isinstance(item, dict)
        ]
    return None


def test_the_sample_is_small_and_has_all_that_a_report_has_now(stored, model):
    assert len(stored) <= LARGEST
    sample = unpack_json(json.loads(stored))
    report = inspect_report(
        model, ["A man sleeps.", "Two dogs."], options=ReportOptions(mode="live"), device="cpu"
    )
    fresh = unpack_json(json.loads(json.dumps(report_data(report))))
    for data in (sample, fresh):  # these are named by heads
        for sentence in data["sentences"]:
            assert sentence.pop("vectors")
            assert sentence["views"]["ablation"].pop("effects")
            # Only of a model that was trained with label smoothing
            sentence["views"]["logits"].pop("smoothing", None)
    assert not set(sample) & set(report_texts())
    fitting = shape_of(sample | report_texts()) == shape_of(fresh)
    assert fitting, "run tests/inspect/write_sample_report.py"


def test_the_sample_is_a_translation_that_was_searched(stored):
    (sentence,) = json.loads(stored)["sentences"]
    assert sentence["source"].startswith("The animal didn't cross the street")
    assert sentence["isLive"]
    path = [sentence["search"]["nodes"][number]["piece"] for number in sentence["search"]["path"]]
    assert path[1:] == sentence["targetPieces"]
    head = next(entry for entry in sentence["heads"] if entry["id"].startswith("cross"))
    weights = np.frombuffer(base64.b64decode(head["weights"]), "<u2") / 65535
    rows = weights.reshape(len(sentence["targetPieces"]), len(sentence["sourcePieces"]))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, atol=1e-3)


def test_the_page_is_filled_with_it(stored):
    page = sample_page()
    assert page == sample_page()
    assert page_data(page) == json.loads(stored) | json.loads(json.dumps(report_texts()))
