"""Heads of language models and classifiers over texts: summed up, dumped, compared, ablated."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tests.models import LINES
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.app import app
from tformer_cli.evaluate.evaluate import evaluate_texts
from tformer_cli.inspect.jobs.ablate import inspect_ablate
from tformer_cli.inspect.jobs.follow_heads import HeadFollower, probe_pairs
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.report import inspect_view
from tformer_cli.inspect.views.timeline import heads_over_time
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.labels import score_labels
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.corpora import SentencePair

TEXTS = ["Two dogs run in the street", "", "Two dogs", "in the street run two dogs"]
LABELS = ("fair", "good", "no\tgood")


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(params=["language_model", "classifier"])
def path(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts"
    file.write_text("".join(f"{line}\n" for line in TEXTS))
    return file


def inspected(path):
    directory = load_model_directory(path, tasks=("language-model", "classify"))
    return directory, directory.any_model


def test_a_corpus_is_summed_up_as_its_texts_one_by_one(path, texts):
    done = run("inspect-heads", path, "--corpus", "-i", texts, "--format", "jsonl", "-q")
    assert done.exit_code == 0, done.stderr
    summaries = [json.loads(line) for line in done.stdout.splitlines()]
    records = [one for one in inspect_heads(path, TEXTS) if one.maps is not None]
    assert len(records) == 3
    for summary, head in zip(summaries, records[0].heads, strict=True):
        n_rows = [one.captured.weights(head).shape[0] for one in records]
        expected = np.average([one.metrics[head]["entropy"] for one in records], weights=n_rows)
        assert (summary["id"], summary["n_rows"]) == (str(head), sum(n_rows))
        assert summary["metrics"]["entropy"] == pytest.approx(expected, rel=1e-4)


def test_a_dump_holds_the_maps_of_every_text(path, texts, tmp_path):
    done = run("inspect-heads", path, "--dump", tmp_path / "dump", "-i", texts)
    assert done.exit_code == 0, done.stderr
    (shard,) = (tmp_path / "dump").glob("*.safetensors")
    arrays = load_file(shard)
    assert arrays["index"].tolist() == [0, 2, 3]
    first = next(iter(inspect_heads(path, TEXTS)))
    head = first.heads[-1]
    weights = first.captured.weights(head)
    kept = arrays[f"{head.kind}.{head.layer}.w"][head.head, : weights.numel()]
    assert np.allclose(kept.reshape(weights.shape), weights, atol=1e-3)
    is_text = first.is_labeled
    ids = "src_ids" if is_text else "tgt_ids"
    expected = first.captured.source_ids if is_text else first.captured.target_ids
    assert arrays[ids][: len(expected)].tolist() == list(expected)
    assert arrays["tgt_ids" if is_text else "src_ids"].size == 0
    # the size is known before: there is nothing to be translated
    assert "about" not in done.stderr


def test_models_of_one_kind_are_compared(path, texts, language_model, classifier):
    done = run("inspect-diff", path, path, "-i", texts, "--format", "jsonl", "--maps", "-q")
    assert done.exit_code == 0, done.stderr
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(pair["a"] == pair["b"] and pair["divergence"] == 0.0 for pair in pairs)
    assert len(pairs) == 4
    shown = run("inspect-diff", path, path, "-i", texts, "--format", "text", "-q").stdout
    assert "dogs" in shown
    assert run("inspect-diff", path, path, "-i", texts, "--format", "svg", "-q").exit_code == 0
    other = classifier if path == language_model else language_model
    done = run("inspect-diff", path, other, "-i", texts, "-q")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "only models of one kind can be compared" in done.stderr


def test_heads_are_followed_while_a_model_is_trained(path, tmp_path):
    directory, model = inspected(path)
    pairs = [SentencePair("" if "language" in str(path) else line, line) for line in TEXTS]
    follower = HeadFollower(tmp_path, model, directory.tokenizer, pairs, 0)
    for step in (0, 5):
        follower.record(step)
    timeline = heads_over_time(tmp_path)
    assert (timeline.steps, timeline.n_sentences, len(timeline.courses)) == ((0, 5), 3, 4)
    records = [one for one in inspect_heads(path, TEXTS) if one.maps is not None]
    course = timeline.courses[0]
    n_rows = [one.captured.weights(course.head).shape[0] for one in records]
    expected = np.average([one.metrics[course.head]["self"] for one in records], weights=n_rows)
    assert course.metrics["self"] == pytest.approx(expected, rel=1e-4)
    shown = run("inspect-heads", tmp_path, "--over-time", "--format", "text")
    assert shown.exit_code == 0, shown.stderr


def test_a_stream_is_followed_in_blocks(language_model):
    directory, model = inspected(language_model)
    config = replace(model.config, target_eos=False)
    pairs = [SentencePair("", line) for line in LINES * 80]
    side = directory.tokenizer.target
    found = probe_pairs(pairs, directory.tokenizer, config)
    assert len(found) == 32
    assert {len(ids) for _, _, (_, ids) in found} == {39}  # as the model takes: `<s>` is the 40th
    text = "".join(pair.target for _, pair, _ in found)
    assert text.split()[:20] == " ".join(f"{line}\n" for line in LINES * 80).split()[:20]
    short = probe_pairs(pairs[:1], directory.tokenizer, config)
    assert [ids for _, _, (_, ids) in short] == side.encode_batch([f"{LINES[0]}\n"])


def ablated(path, lines, references=(), **settings):
    from tformer_cli.inspect.views.ablation import AblationSettings

    return inspect_ablate(path, lines, references, settings=AblationSettings(**settings))


@pytest.mark.parametrize("kind", ["lines", "stream"])
def test_the_loss_of_a_text_is_the_one_that_evaluate_tells(language_model, tmp_path, kind):
    path = language_model
    if kind == "stream":  # the same model, told that its texts have no end
        path = tmp_path / "stream"
        path.mkdir()
        for file in language_model.iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        config = json.loads((path / "config.json").read_text())
        config["model"]["target_eos"] = False
        (path / "config.json").write_text(json.dumps(config))
    lines = [*TEXTS, " ".join(LINES * 3)]  # the last is longer than the model takes
    expected = evaluate_texts(open_model(path, "generate", device="cpu"), lines)
    assert expected.kind == kind
    found = ablated(path, lines)
    assert found.n_tokens == expected.scores.n_tokens
    assert found.loss == pytest.approx(expected.scores.loss, abs=1e-5)
    assert found.perplexity == pytest.approx(expected.scores.perplexity, rel=1e-4)
    assert [point.n_removed for point in found.curve] == [0, 1, 2, 3, 4]
    assert found.curve[0].loss == pytest.approx(found.loss)
    worst = found.by_loss[0]
    assert worst.loss.low <= worst.loss.difference <= worst.loss.high


def test_accuracy_is_measured_without_each_head(classifier, tmp_path):
    lines = [line for line in [*LINES, *TEXTS] if line]
    labels = [LABELS[number % 3] for number in range(len(lines))]
    labeled = [
        one.label for one in label_texts(open_model(classifier, "classify", device="cpu"), lines)
    ]
    expected = 100.0 * score_labels(labeled, labels, LABELS).accuracy
    found = ablated(classifier, [*lines, ""], [[*labels, "fair"]])
    assert found.n_tokens == len(lines)  # blank texts are left out
    assert found.scores == {"accuracy": pytest.approx(expected)}
    assert found.curve[0].scores[0].value == pytest.approx(expected)
    for effect in found.effects:
        (accuracy,) = effect.scores
        assert accuracy.baseline == pytest.approx(expected)
        assert accuracy.low <= accuracy.difference <= accuracy.high
    for name, content in (("texts", lines), ("labels", labels)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    given = ("-i", tmp_path / "texts", "--reference", tmp_path / "labels", "-q")
    shown = run("inspect-ablate", classifier, *given, "--format", "text").stdout
    assert "Δaccuracy" in shown
    assert "change of the loss per label" in " ".join(shown.split())
    (first, *_) = run("inspect-ablate", classifier, *given, "--format", "jsonl").stdout.split("\n")
    assert json.loads(first)["scores"] == {"accuracy": pytest.approx(expected, rel=1e-4)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("language_model", ["--reference"], "--reference: a language model predicts its own text"),
        ("language_model", ["--scores", "2"], "--scores: translates, and so is of translation mod"),
        ("language_model", ["--keep", "2", "--write-pruned"], "--write-pruned: translates"),
        ("classifier", [], "--reference: is missing; name the file of the right labels"),
        ("classifier", ["--reference", "--reference"], "--reference: a text has one right label"),
        ("classifier", ["--reference"], "is none of the labels"),
    ],
)
def test_what_does_not_fit_the_task_is_one_line(request, texts, tmp_path, name, options, message):
    arguments: list[object] = []
    for option in options:
        arguments.append(option)
        if option == "--reference":
            arguments.append(texts)
        if option == "--write-pruned":
            arguments.append(tmp_path / "pruned")
    path = request.getfixturevalue(name)
    done = run("inspect-ablate", path, "-i", texts, *arguments, "-q")
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_head_that_reads_one_word_is_found(tmp_path, tmp_path_factory):
    """Head 1 is made to read the token of "dogs" and nothing else, head 0 all alike."""
    from tests.inspect.test_other_tasks import saved
    from tformer_cli.text.config import TokenizerConfig
    from tformer_cli.text.train_tokenizer import train_tokenizer

    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(algorithm="word", vocab_size=60))
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=0, n_labels=3,
        max_positions=40, positions="none", scale_embeddings=False,
    )  # fmt: skip
    path = saved(tmp_path_factory, Classifier, config, tokenizer, DecodingConfig(), LABELS)
    directory, model = inspected(path)
    (dogs,) = tokenizer.source.encode("dogs")
    with torch.no_grad():
        model.source_embedding.weight.copy_(torch.eye(64)[: len(model.source_embedding.weight)])
        attention = model.encoder.layers[0].self_attention
        attention.in_projection.weight.zero_()
        attention.in_projection.bias.zero_()
        attention.in_projection.bias[32] = 10.0  # q of head 1
        attention.in_projection.weight[64 + 32, dogs] = 10.0  # k of head 1
        attention.in_projection.weight[128:] = torch.eye(64)
        attention.in_projection.bias[128:] = 1.0
    from tformer_cli.artifacts.model_directory import save_model_directory

    made = tmp_path / "made"
    save_model_directory(
        made, model.state_dict(), config=config, tokenizer=directory.tokenizer,
        decoding=directory.decoding, info=directory.info,
    )  # fmt: skip
    (record,) = inspect_view("flow", made, ["Two dogs run in the street"])
    even, reads = record.readings
    place = record.sentence.captured.source_ids.index(dogs)
    assert reads.first == place
    assert reads.shares[place].item() == pytest.approx(1.0, abs=1e-4)
    assert even.shares.std() < 0.05
    shown = run("inspect-flow", made, "Two dogs run in the street", "--format", "text", "-q").stdout
    assert "enc.0.1" in shown.splitlines()[-1]
    assert "dogs" in shown.splitlines()[-1]
