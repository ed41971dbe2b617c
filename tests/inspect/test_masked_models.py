"""Views of masked language models and of encoders, against what the models themselves compute."""

import json

import pytest
import torch

pytest.importorskip("transformers")

import tformer_cli
from tests.cli.commands.test_fill import expected_candidates, run
from tests.foreign import encoders
from tests.inspect.cases import of
from tests.inspect.conftest import check_losses
from tests.models import LINES
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.ablation import (
    batch_of_gaps,
)
from tformer_cli.plugins.instruments.jobs.report import inspect_report

TEXT = "the [MASK] was not too [MASK]."


@pytest.fixture(scope="module", params=["bert", "roberta"])
def masked(request, tmp_path_factory, one_thread):
    """A random masked language model, imported, the original and its tokenizer."""
    return import_model_of(tmp_path_factory.mktemp("masked"), request.param, "ForMaskedLM")


def import_model_of(folder, kind, head):
    model, tokenizer = encoders.write_directory(folder / "theirs", kind, head)
    done = run("import", folder / "theirs", "-o", folder / "ours", "-q")
    assert done.exit_code == 0, done.stderr
    return folder / "ours", model, tokenizer


def test_gaps_are_filled_as_by_fill(masked):
    path, _, _ = masked
    (record,) = inspect_heads(path, [TEXT])
    result = GapFiller(open_model(path, "fill", device="cpu")).fill([TEXT])[0]
    assert record.target == result.filled
    assert [gap.piece for gap in record.gaps] == [gap[0].piece for gap in result.gaps]
    for gap in record.gaps:
        assert record.source_pieces[gap.position] in ("[MASK]", "<mask>")
    assert record.captured.residual < 1e-5
    data = json.loads(run("inspect-heads", path, TEXT, "--format", "jsonl", "-q").stdout)
    assert data["gaps"][0]["piece"] == record.gaps[0].piece
    assert data["target"]["text"] == result.filled
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
        assert [token.probability for token in position.top] == pytest.approx(theirs, abs=1e-5)
        for token in position.top[:3]:
            if (theirs_id := tokenizer.token_to_id(token.piece)) is not None:
                assert token.probability == pytest.approx(row[theirs_id].item(), abs=1e-5)
        assert position.lens[-1].probability == pytest.approx(position.chosen.probability, abs=1e-6)


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


@pytest.fixture(scope="module", params=["bert", "distilbert"])
def encoder(request, tmp_path_factory, one_thread):
    return import_model_of(tmp_path_factory.mktemp("encoder"), request.param, "Model")


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
    assert record.steps[11].name == "vector"
    (flow,) = inspect_view("flow", path, [LINES[0]])
    assert flow.flows["alti"].source.sum().item() == pytest.approx(1.0, abs=1e-5)
    assert flow.written == ("the vector",)
    report = inspect_report(path, [LINES[0]], device="cpu")
    assert set(report.sentences[0].views) == {"step", "flow"}


def test_losses_and_the_report_are_of_the_gaps(masked):
    (record,) = inspect_heads(masked[0], [TEXT])
    model = load_model_directory(masked[0], tasks=("masked",)).masked_model
    fills = {gap.position: gap.id for gap in record.gaps}
    rows = expected_candidates(masked, TEXT)
    expected = -sum(row.max().log().item() for row in rows)
    batch = batch_of_gaps(record.captured.source_ids, fills)
    check_losses(model, batch, [expected], hits=[len(rows)])
    report = inspect_report(masked[0], [TEXT, "the soup"], device="cpu")
    with_gaps, without = (set(sentence.views) for sentence in report.sentences)
    assert with_gaps == {"step", "logits", "flow", "ablation", "decision"}
    assert without == {"step"}
    walks = [walk for sentence in report.sentences for walk in sentence.views["step"]]
    assert all(walk.difference < 1e-5 for walk in walks)


@of("masked")
def test_the_kernels_get_the_threads_that_were_asked_for(case, monkeypatch):
    threads = []
    monkeypatch.setattr(
        "tformer_cli.fast.native_encoder.compiled_encoder",
        lambda model, tell=None, n_threads=0: threads.append(n_threads) or "not now",
    )
    run("fill", case.path, TEXT, "--threads", 3, "-q")
    tformer_cli.load(case.path, device="cpu", threads=2)
    assert threads == [3, 2]
