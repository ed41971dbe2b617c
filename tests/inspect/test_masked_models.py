"""Views of masked language models and of encoders, against what the models themselves compute."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.numpy import load_file

pytest.importorskip("transformers")

import tformer_cli
from tests.cli.commands.test_fill import expected_candidates, run
from tests.foreign import encoders
from tests.inspect.conftest import check_losses
from tests.models import LINES
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.evaluate.evaluate import evaluate_masked
from tformer_cli.inspect.ablation import (
    batch_of_gaps,
)
from tformer_cli.inspect.jobs.ablate import inspect_ablate
from tformer_cli.inspect.jobs.dump_heads import DumpedCorpus, HeadDumper
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.inspect.jobs.report import inspect_report, inspect_view
from tformer_cli.inspect.pages import render_report
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly, MaskedLanguageModel
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.text.train_tokenizer import train_tokenizer

TEXT = "the [MASK] was not too [MASK]."


@pytest.fixture(scope="module", params=["bert", "roberta"])
def masked(request, tmp_path_factory, one_thread):
    """A random masked language model, imported, the original and its tokenizer."""
    return imported(tmp_path_factory.mktemp("masked"), request.param, "ForMaskedLM")


def imported(folder, kind, head):
    model, tokenizer = encoders.write_directory(folder / "theirs", kind, head)
    done = run("import", folder / "theirs", "-o", folder / "ours", "-q")
    assert done.exit_code == 0, done.stderr
    return folder / "ours", model, tokenizer


@pytest.fixture(scope="module")
def own(tmp_path_factory, one_thread):
    """A masked language model of our own, pre-norm, with rotary positions and an end of texts."""
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300)).with_mask()
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=64, n_encoder_layers=2, n_decoder_layers=0, head="tokens",
        max_positions=40, norm="pre", norm_kind="rms", positions="rotary",
    )  # fmt: skip
    torch.manual_seed(4)
    weights = MaskedLanguageModel(config, tokenizer.vocab_size).state_dict()
    path = tmp_path_factory.mktemp("own") / "model"
    random = {name: 2.0 * one + 0.1 * torch.randn_like(one) for name, one in weights.items()}
    save_model_directory(
        path, random, config=config, tokenizer=tokenizer, decoding=DecodingConfig(),
        info=ModelInfo(),
    )  # fmt: skip
    return path


def filled(path, text):
    return GapFiller(open_model(path, "fill", device="cpu")).fill([text])[0]


def test_gaps_are_filled_as_by_fill(masked):
    path, _, _ = masked
    (record,) = inspect_heads(path, [TEXT])
    found = filled(path, TEXT)
    assert record.target == found.filled
    assert [gap.piece for gap in record.gaps] == [gap[0].piece for gap in found.gaps]
    for gap in record.gaps:
        assert record.source_pieces[gap.position] in ("[MASK]", "<mask>")
    assert record.captured.residual < 1e-5
    data = json.loads(run("inspect-heads", path, TEXT, "--format", "jsonl", "-q").stdout)
    assert data["gaps"][0]["piece"] == record.gaps[0].piece
    assert data["target"]["text"] == found.filled
    assert "label" not in data
    shown = run("inspect-heads", path, TEXT, "--format", "text", "-q").stdout
    assert "filled" in shown


def test_logits_of_gaps_are_those_of_transformers(masked):
    path, _, _ = masked
    (record,) = inspect_view("logits", path, [TEXT], settings={"lens": True, "top_k": 7})
    rows = expected_candidates(masked, TEXT)
    tokenizer = masked[2]
    assert len(record.positions) == len(rows) == 2
    for position, row in zip(record.positions, rows, strict=True):
        theirs = sorted(row.tolist(), reverse=True)[:7]
        assert [one.probability for one in position.top] == pytest.approx(theirs, abs=1e-5)
        for one in position.top[:3]:
            if (theirs_id := tokenizer.token_to_id(one.piece)) is not None:
                assert one.probability == pytest.approx(row[theirs_id].item(), abs=1e-5)
        assert position.lens[-1].probability == pytest.approx(position.chosen.probability, abs=1e-6)


def test_the_lens_reads_a_layer_as_a_model_that_ends_with_it(own):
    (record,) = inspect_view("logits", own, [TEXT], settings={"lens": True})
    model = load_model_directory(own, tasks=("masked",)).masked_model
    model.encoder.layers = model.encoder.layers[:1]
    ids = torch.tensor([record.sentence.captured.source_ids])
    with torch.inference_mode():
        rows = model(ids, ids != PAD_ID)[0].double().softmax(-1)
    for position in record.positions:
        expected = rows[position.position, position.chosen.id].item()
        assert position.lens[0].probability == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("place", ["0", "2", "[MASK]#2"])
def test_a_head_is_worked_through_to_the_word_of_a_gap(masked, place):
    path, _, _ = masked
    place = (
        place.replace("[MASK]", "<mask>")
        if "roberta" in str(masked[1].config.model_type)
        else place
    )
    (record,) = inspect_view("step", path, [TEXT], settings={"head": "enc.0.1", "token": place})
    assert record.difference < 1e-5
    assert {step.number for step in record.steps if step.checks} >= {0, 1, 2, 3, 4, 6, 7, 8, 9, 10}
    gaps = {gap.position: number for number, gap in enumerate(record.sentence.gaps)}
    number = gaps.get(record.row, 0)
    words = record.table("words")
    assert words.rows[words.marked_row] == record.sentence.gaps[number].piece
    row = expected_candidates(masked, TEXT)[number]
    assert words.values[0, 2].item() == pytest.approx(row.max().item(), abs=1e-5)


def test_a_text_without_gaps_is_worked_through_at_its_own_place(own):
    (record,) = inspect_view("step", own, ["Two dogs"], settings={"head": "enc.1.0", "token": "1"})
    assert record.difference < 1e-5
    assert "position 1" in record.steps[10].says
    assert record.steps[10].formulas[0] == "t = RMS(relu(W·h + b))"


def test_flow_follows_each_gap(own):
    (record,) = inspect_view("flow", own, [TEXT])
    places = [gap.position for gap in record.sentence.gaps]
    for method in ("alti", "rollout"):
        (maps,) = inspect_heads(own, [TEXT], weights=method)
        assert torch.allclose(record.flows[method].source, maps.captured.enc[-1][0][places])
    (norms,) = inspect_heads(own, [TEXT], weights="norm")
    for reading in record.readings:
        rows = norms.captured.weights(reading.head)[places].sum(dim=0).double()
        assert torch.allclose(reading.shares, rows / rows.sum(), atol=1e-6)
    data = json.loads(run("inspect-flow", own, TEXT, "--format", "jsonl", "-q").stdout)
    assert [one["position"] for one in data["positions"]] == places
    assert {one["read"] for one in data["positions"]} == {"[MASK]"}
    shown = run("inspect-flow", own, TEXT, "--format", "text", "-q").stdout
    assert "fills in" in shown
    assert "reads most" in shown


def test_losses_without_heads_are_those_of_the_model_without_them(masked, own):
    for path in (masked[0], own):
        (record,) = inspect_heads(path, [TEXT])
        model = load_model_directory(path, tasks=("masked",)).masked_model
        fills = {gap.position: gap.id for gap in record.gaps}
        batch = batch_of_gaps(record.captured.source_ids, fills)
        with torch.inference_mode():
            rows = model(batch.source, batch.source_mask)[0].log_softmax(-1)
        expected = -sum(rows[place, token].item() for place, token in fills.items())
        right = sum(int(rows[place].argmax()) == token for place, token in fills.items())
        check_losses(model, batch, [expected], hits=[right])


def test_a_text_is_measured_as_evaluate_measures_it(own):
    lines = [*LINES, "", *LINES]
    scores = evaluate_masked(open_model(own, "fill", device="cpu"), lines).scores
    found = inspect_ablate(own, lines, device="cpu")
    assert found.n_tokens == scores.n_tokens
    assert found.loss == pytest.approx(scores.loss, abs=1e-5)
    assert found.scores["accuracy"] == pytest.approx(scores.accuracy)
    assert len(found.effects) == 8
    assert found.curve[0].loss == pytest.approx(found.loss, abs=1e-6)


def test_a_text_is_measured_by_command(own, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n")
    given = ("inspect-ablate", own, "-i", tmp_path / "a.txt", "-q")
    shown = " ".join(run(*given, "--format", "text").stdout.split())
    assert "nats per token" in shown
    assert "perplexity" in shown
    assert "accuracy" in shown
    done = run(*given, "--reference", tmp_path / "a.txt")
    message = "--reference: a masked language model predicts its own text; omit it"
    assert (done.exit_code, done.stderr) == (2, f"error: {message}\n")


def test_a_report_has_what_there_is_to_show(masked, own):
    for path in (masked[0], own):
        report = inspect_report(path, [TEXT, "the soup"], device="cpu")
        with_gaps, without = (set(sentence.views) for sentence in report.sentences)
        assert with_gaps == {"step", "logits", "flow", "ablation"}
        assert without == {"step"}
        assert all(
            walk.difference < 1e-5
            for sentence in report.sentences
            for walk in sentence.views["step"]
        )
        assert "What would fill the gaps" in render_report(report)


@pytest.mark.parametrize("name", ["logits", "flow"])
def test_a_text_without_gaps_is_one_line(own, name):
    done = run(f"inspect-{name}", own, "Two dogs", "-q")
    message = "line 1: has no gap that is to be filled; write [MASK] in the place of a word"
    assert (done.exit_code, done.stderr) == (2, f"error: {message}\n")


def test_a_gap_is_a_word_of_its_own(own):
    (record,) = inspect_heads(own, ["a[MASK] [MASK]b"], for_page=True)
    words = record.extras.source_words
    assert words.texts.count("[MASK]") == 2
    places = [gap.position for gap in record.gaps]
    assert [words.texts[words.of_token[place]] for place in places] == ["[MASK]"] * 2


def test_gaps_of_a_corpus_are_gaps(own, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT + "\n")
    given = ("inspect-heads", own, "-i", tmp_path / "a.txt", "--corpus", "--format", "jsonl", "-q")
    (record,) = inspect_heads(own, [TEXT])
    done = run(*given)
    assert done.exit_code == 0, done.stderr
    for line in map(json.loads, done.stdout.splitlines()):
        (head,) = (head for head in record.heads if str(head) == line["id"])
        assert line["metrics"]["entropy"] == pytest.approx(
            record.metrics[head]["entropy"], abs=1e-4
        )
    done = run("inspect-diff", own, own, "-i", tmp_path / "a.txt", "--format", "text", "-q")
    assert done.exit_code == 0, done.stderr


def test_the_size_of_a_dump_is_that_of_its_tokens_with_gaps(own, tmp_path):
    opened = open_for_inspection(own, device="cpu", tasks=("masked",))
    dumper = HeadDumper(opened)
    lines = DumpedCorpus(lines=lambda: iter([TEXT, "", LINES[0], TEXT]))
    estimate = dumper.estimate(lines)
    list(dumper.write(lines, tmp_path / "dump"))
    arrays = load_file(tmp_path / "dump" / "part-00000.safetensors")
    n_bytes = sum(array.nbytes for array in arrays.values())
    assert estimate.is_exact
    assert estimate.pairs == len(arrays["index"]) == 3
    assert n_bytes - estimate.n_bytes == 8 * len(dumper.layout.kinds)


def test_the_kernels_get_the_threads_that_were_asked_for(own, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "tformer_cli.fast.native_encoder.compiled_encoder",
        lambda model, tell=None, n_threads=0: asked.append(n_threads) or "not now",
    )
    run("fill", own, TEXT, "--threads", 3, "-q")
    tformer_cli.load(own, device="cpu", threads=2)
    assert asked == [3, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "live"], "--mode live: is of translation models; of a masked language model"),
        (["--target", "x"], "--target: a masked language model reads one text; omit it"),
    ],
)
def test_what_is_of_translations_is_one_line(own, options, message):
    done = run("inspect-heads", own, TEXT, *options, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def encoder(request, tmp_path_factory, one_thread):
    return imported(tmp_path_factory.mktemp("encoder"), request.param, "Model")


def test_an_encoder_is_looked_into_up_to_its_vector(encoder):
    path, _, _ = encoder
    (record,) = inspect_view("step", path, [LINES[0]], settings={"head": "enc.1.0", "token": "1"})
    assert record.difference < 1e-5
    opened = open_model(path, "embed", device="cpu").directory.encoder
    ids = torch.tensor([record.sentence.captured.source_ids])
    with torch.inference_mode():
        vector = opened(ids, torch.ones_like(ids, dtype=torch.bool))[0].double()
    table = record.table("pooled")
    assert torch.allclose(table.values[-1], vector, atol=1e-5)
    assert record.steps[10].name == "vector"
    (flow,) = inspect_view("flow", path, [LINES[0]])
    assert flow.flows["alti"].source.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert flow.written == ("the vector",)
    report = inspect_report(path, [LINES[0]], device="cpu")
    assert set(report.sentences[0].views) == {"step", "flow"}


def test_a_vector_of_length_1_is_worked_through(own, tmp_path):
    directory = load_model_directory(own, tasks=("masked",))
    config = replace(directory.config, head="none", unit_length=True)
    save_model_directory(
        tmp_path / "m", EncoderOnly(config, directory.tokenizer.vocab_size).state_dict(),
        config=config, tokenizer=directory.tokenizer, decoding=DecodingConfig(), info=ModelInfo(),
    )  # fmt: skip
    settings = {"head": "enc.1.0", "token": "1"}
    (record,) = inspect_view("step", tmp_path / "m", [LINES[0]], settings=settings)
    assert record.difference < 1e-5
    assert record.steps[10].formulas[1] == "v = p / |p|"
    assert record.table("pooled").values[1].norm().item() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["logits", "ablate"])
def test_an_encoder_predicts_nothing(encoder, name):
    given = ("-i", encoder[0] / "config.json") if name == "ablate" else (LINES[0],)
    done = run(f"inspect-{name}", encoder[0], *given, "-q")
    assert done.exit_code == 2
    assert "is an encoder, which turns texts into vectors" in done.stderr
    assert done.stderr.count("\n") == 1
