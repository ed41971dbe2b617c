"""Views of language models and classifiers, against what the models themselves compute."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tests.inspect.conftest import check_losses
from tests.models import LINES
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.cli.app import app
from tformer_cli.inspect.ablation import (
    batch_of,
    losses_of,
)
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.report import inspect_report as make_report
from tformer_cli.inspect.jobs.report import inspect_view
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.scoring import score_texts
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.text.train_tokenizer import train_tokenizer

TEXT = "Two dogs run in the street"
NAMES = ("fair", "good", "no\tgood")


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(scope="module")
def stream_model(tmp_path_factory, one_thread):
    """A language model whose texts neither begin nor end, pre-norm, with shared keys."""
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
    config = ModelConfig(
        d_model=32, n_heads=4, n_key_heads=2, d_ff=64, n_encoder_layers=0, n_decoder_layers=3,
        max_positions=40, norm="pre", positions="rotary", target_bos=False, target_eos=False,
    )  # fmt: skip
    return saved(tmp_path_factory, Transformer, config, tokenizer, DecodingConfig(sampling=True))


def saved(tmp_path_factory, kind, config, tokenizer, decoding, labels=()):
    """The directory of a model all of whose parameters are random."""
    torch.manual_seed(5)
    weights = kind(config, tokenizer.vocab_size).state_dict()
    path = tmp_path_factory.mktemp("saved") / "model"
    save_model_directory(
        path,
        {name: 2.0 * w + 0.1 * torch.randn_like(w) for name, w in weights.items()},
        config=config,
        tokenizer=tokenizer,
        decoding=decoding,
        info=ModelInfo(labels=labels),
    )
    return path


@pytest.fixture(params=["language_model", "stream_model"])
def texts(request):
    """The directory of a language model with its model and the ids of the text."""
    path = request.getfixturevalue(request.param)
    directory = load_model_directory(path, tasks=("language-model",))
    return path, directory.model, directory.tokenizer.target.encode(TEXT)


def test_a_text_is_read_whole_and_without_a_source(texts):
    path, model, ids = texts
    (record,) = inspect_heads(path, [TEXT])
    maps = record.captured
    assert maps.source_ids == record.source_pieces == ()
    assert list(maps.target_input_ids[model.config.target_bos :]) == ids
    assert record.captured.residual < 1e-5
    with torch.inference_mode():
        nothing = torch.full((1, 1), EOS_ID)
        last = model(nothing, nothing > 0, torch.tensor([maps.target_input_ids]))[0, -1]
    # where texts have no end, the last row is what the model would write next
    assert maps.next_id == (EOS_ID if model.config.target_eos else int(last.argmax()))


def test_as_many_tokens_fit_as_the_model_has_positions(texts):
    path, model, ids = texts
    room = model.config.max_positions - model.config.target_bos
    longest = (ids * room)[:room]
    tokenizer = load_model_directory(path, tasks=("language-model",)).tokenizer.target
    text = tokenizer.decode(longest)
    assert len(tokenizer.encode(text)) == room
    (record,) = inspect_heads(path, [text], heads=["dec.0.0"])
    assert len(record.input_pieces) == model.config.max_positions
    done = run("inspect-heads", path, f"{text} dogs run", "-q")
    assert (done.exit_code, f"but the model takes {room}" in done.stderr) == (2, True)


def test_logits_of_a_text_are_those_that_score_it(texts):
    path, model, ids = texts
    (record,) = inspect_view("logits", path, [TEXT], settings={"lens": True})
    (scored,) = score_texts(
        model, [ids], window=model.max_positions, stride=40, batch_tokens=4096, device="cpu"
    )
    found = [position.log_probability for position in record.positions]
    assert found[: len(scored)] == pytest.approx(scored, abs=1e-5)
    assert len(found) == len(scored) + (not model.config.target_eos)
    for position in record.positions:
        assert position.lens[-1].probability == pytest.approx(position.chosen.probability)
        assert position.rank == 1 or position is not record.positions[-1] or model.config.target_eos


@pytest.mark.parametrize("weights", ["norm", "rollout", "alti"])
def test_other_weights_of_a_text_add_up(texts, weights):
    path, _, _ = texts
    (record,) = inspect_heads(path, [TEXT], weights=weights)
    assert record.captured.residual < 1e-4
    assert (record.captured.enc, record.captured.cross) == ((), ())
    if weights != "norm":
        sums = record.captured.dec[-1].sum(dim=-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    if weights == "rollout":
        (plain,) = inspect_heads(path, [TEXT])
        product = torch.eye(len(plain.input_pieces))
        for layer in plain.captured.dec:
            product = (layer.mean(dim=0) + torch.eye(len(product))) / 2 @ product
        assert torch.allclose(record.captured.dec[-1][0], product, atol=1e-5)


def test_the_flow_of_a_text_is_of_what_was_read(texts):
    path, _, _ = texts
    (record,) = inspect_view("flow", path, [TEXT])
    (alti,) = inspect_heads(path, [TEXT], weights="alti")
    assert torch.equal(record.flows["alti"].prefix, alti.captured.dec[-1][0])
    done = run("inspect-flow", path, TEXT, "--format", "jsonl", "-q")
    positions = json.loads(done.stdout)["positions"]
    for place, position in enumerate(positions):
        assert set(position["alti"]) == {"prefix"}
        assert len(position["alti"]["prefix"]) == place + 1
        assert sum(position["alti"]["prefix"]) == pytest.approx(1.0, abs=1e-4)
    shown = run("inspect-flow", path, TEXT, "--format", "text", "-q").stdout
    assert "from the text" in shown
    assert "source" not in shown


@pytest.mark.parametrize("head", ["dec.0.0", "dec.1.1"])
def test_a_head_of_a_text_is_worked_through(texts, head):
    path, _, _ = texts
    settings = {"head": head, "token": "3"}
    (record,) = inspect_view("step", path, [TEXT], settings=settings)
    assert record.difference < 1e-5
    assert {step.number for step in record.steps if step.checks} >= {1, 2, 3, 4, 6, 7, 8, 9, 10}
    words = record.table("words")
    assert words.rows[words.marked_row] == record.sentence.target_pieces[3]
    assert record.where.startswith("decoder position 3, which has read")


def test_losses_without_heads_of_a_text_are_those_of_the_score(texts):
    _, model, ids = texts
    both = [ids, ids[:4]]
    scored = score_texts(
        model, both, window=model.max_positions, stride=40, batch_tokens=4096, device="cpu"
    )
    batch, expected = batch_of(model, [((), one) for one in both]), [-sum(one) for one in scored]
    check_losses(model, batch, expected, measure=losses_of, atol=1e-4)


@pytest.mark.parametrize("name", ["language_model", "stream_model", "classifier"])
def test_a_report_has_every_view(request, tmp_path, name):
    path = request.getfixturevalue(name)
    file = tmp_path / "report.html"
    done = run("inspect-report", path, TEXT, "Two", "-o", file, "-q")
    assert done.exit_code == 0, done.stderr
    report = make_report(path, [TEXT], device="cpu")
    (sentence,) = report.sentences
    assert set(sentence.views) == {"step", "logits", "flow", "ablation"}
    assert set(report.views) == {"positions"}
    assert all(walk.difference < 1e-5 for walk in sentence.views["step"])


@pytest.mark.parametrize("name", ["language_model", "stream_model", "classifier"])
def test_positions_of_the_only_stack_are_shown(request, name):
    path = request.getfixturevalue(name)
    (record,) = inspect_view("positions", path)
    stack = "encoder" if name == "classifier" else "decoder"
    assert [table.stack for table in record.tables] == [stack]


def test_heads_that_share_keys_are_told(stream_model, language_model):
    (record,) = inspect_heads(stream_model, [TEXT])
    assert record.model.n_key_heads == 2
    assert record.model.sharing == "heads 0-1, 2-3 share keys and values"
    shown = run("inspect-heads", stream_model, TEXT, "--format", "text", "-q").stdout
    assert "(heads 0-1, 2-3 share keys and values)" in " ".join(shown.split())
    page = run("inspect-heads", stream_model, TEXT, "--format", "html", "-q").stdout
    assert '"n_key_heads":2' in page
    (record,) = inspect_heads(language_model, [TEXT])
    assert (record.model.n_key_heads, record.model.sharing) == (0, "")
