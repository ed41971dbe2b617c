import json
import re

import numpy as np
import pytest
import torch

from tests.oracles.unpacked import unpacked
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.heads.names import HeadId, head_layout
from tformer_cli.inspect.jobs.report import inspect_report
from tformer_cli.inspect.page.report_page import render_report
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.inspect.views.step import COMPONENTS
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

LINES = ["A man sleeps in the snow.", "", "Two dogs."]


@pytest.fixture(scope="module")
def report(model):
    return inspect_report(model, LINES, device="cpu")


def data_of(text):
    return unpacked(
        json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    )


@pytest.fixture(scope="module")
def data(report):
    return data_of(render_report(report))


def test_the_same_report_gives_the_same_bytes(report, model):
    assert render_report(report) == render_report(inspect_report(model, LINES, device="cpu"))


def test_blank_lines_are_left_out_and_every_tab_has_its_data(data):
    assert [one["index"] for one in data["sentences"]] == [0, 2]
    for one in data["sentences"]:
        views = one["views"]
        assert [step["head"].split(".")[0] for step in views["step"]] == ["cross", "dec", "enc"]
        pieces = [position["piece"] for position in views["logits"]["positions"]]
        assert pieces == one["targetPieces"]
        assert set(views["ablation"]["effects"]) == {head["id"] for head in one["heads"]}


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
                found = np.array(
                    [[-np.inf if v is None else v for v in row] for row in kept["values"]]
                )
                np.testing.assert_allclose(found, expected, atol=6e-5)
                assert kept["width"] == table.values.shape[1]


def test_logits_are_those_of_the_record(report, data):
    found = data["sentences"][0]["views"]["logits"]["positions"]
    for position, shown in zip(report.sentences[0].views["logits"].positions, found, strict=True):
        assert shown["probability"] == pytest.approx(position.chosen.probability, abs=6e-5)
        assert shown["rank"] == position.rank
        assert [one["piece"] for one in shown["top"]] == [one.piece for one in position.top]
        assert [one["rank"] for one in shown["lens"]] == [r.rank for r in position.lens]


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
    (one,) = data_of(render_report(found))["sentences"]
    assert "ablation" not in one["views"]
    assert [step["head"].split(".")[0] for step in one["views"]["step"]] == ["enc"]


def test_the_loss_without_a_head_is_that_of_one_pass_with_it_off(model, report):
    from tformer_cli.artifacts.model_directory import load_model_directory
    from tformer_cli.inspect.ablation.losses import heads_off
    from tformer_cli.inspect.views.logits import layer_logits
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


@pytest.mark.slow
def test_a_report_of_60_tokens_and_144_heads_stays_below_a_megabyte_and_a_half(tmp_path):
    lines = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]
    tokenizer = train_tokenizer(lines * 3, TokenizerConfig(vocab_size=300))
    config = ModelConfig(
        d_model=64, n_heads=8, d_ff=64, n_encoder_layers=6, n_decoder_layers=6, max_positions=80
    )
    torch.manual_seed(3)
    path = tmp_path / "model"
    save_model_directory(
        path,
        Transformer(config, tokenizer.vocab_size).state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(),
        info=ModelInfo(),
    )
    words = ["a man"] * 30
    report = inspect_report(path, [" ".join(words)], targets=[" ".join(words)], device="cpu")
    (sentence,) = report.sentences
    assert len(sentence.heads.source_pieces) == len(sentence.heads.target_pieces) == 61
    text = render_report(report)
    assert data_of(text)["sentences"][0]["bits"] == 16
    # 61 position vectors of a base model's 512 dimensions would be this much larger.
    assert len(text.encode()) + 61 * (512 - 64) * 4 / 3 < 1_500_000
