"""Kinds × texts: heads summed up, dumped, compared, followed and ablated."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.commands import output_of, records_of, refused
from tests.inspect.cases import ONE_A_KIND, of, save_model, stored_model
from tests.models import LINES
from tests.plugins.instruments.views.test_image import directory
from tformer_cli.evaluate.evaluate import evaluate_masked, evaluate_texts
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import inspected_model, open_for_inspection
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.views.timeline import heads_over_time
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.labels import score_labels
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.plugins.instruments.jobs.ablate import inspect_ablate
from tformer_cli.plugins.instruments.jobs.dump_heads import DumpedCorpus, HeadDumper
from tformer_cli.plugins.instruments.jobs.follow_heads import HeadFollower, probe_pairs
from tformer_cli.plugins.instruments.views.ablation import AblationSettings
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.train_tokenizer import train_tokenizer

TEXTS = ["Two dogs run in the street", "", "Two dogs", "in the street run two dogs"]
LABELS = ("fair", "good", "no\tgood")


def lines_for(case):
    return [case.items[0], "", case.items[1]] if case.task in ("masked", "image") else TEXTS


@pytest.fixture
def texts(case, tmp_path):
    file = tmp_path / "texts"
    file.write_text("".join(f"{line}\n" for line in lines_for(case)))
    return file


def inspect_written(case):
    return [
        record for record in inspect_heads(case.path, lines_for(case)) if record.maps is not None
    ]


def mean_of(records, head, name):
    n_rows = [record.captured.weights(head).shape[0] for record in records]
    values = [record.metrics[head][name] for record in records]
    return pytest.approx(np.average(values, weights=n_rows), rel=1e-4), sum(n_rows)


@of(*ONE_A_KIND)
def test_a_corpus_is_summed_up_as_its_texts_one_by_one(case, texts):
    options = ("--corpus", "-i", texts, "--format", "jsonl", "-q")
    records = inspect_written(case)
    summaries = records_of("inspect-heads", case.path, *options)
    assert [line["id"] for line in summaries] == [str(head) for head in records[0].heads]
    for summary, head in zip(summaries, records[0].heads, strict=True):
        for name in ("entropy", "confidence", "self"):
            assert (summary["metrics"][name], summary["n_rows"]) == mean_of(records, head, name)


@of(*ONE_A_KIND)
def test_a_dump_holds_the_maps_of_every_text(case, texts, tmp_path):
    opened = open_for_inspection(case.path, device="cpu", tasks=(case.task,))
    dumper = HeadDumper(opened)
    estimate = dumper.estimate(DumpedCorpus(lines=lambda: iter(lines_for(case))))
    dump = tmp_path / "dump"
    list(dumper.write(DumpedCorpus(lines=lambda: iter(lines_for(case))), dump))
    arrays = load_file(dump / "part-00000.safetensors")
    lines = [place for place, line in enumerate(lines_for(case)) if line]
    assert arrays["index"].tolist() == lines
    # the size is known before: there is nothing to be translated
    assert (estimate.is_exact, estimate.pairs) == (True, len(lines))
    n_bytes = sum(array.nbytes for array in arrays.values())
    assert n_bytes - estimate.n_bytes == 8 * len(dumper.layout.kinds)
    records, side = inspect_written(case), "src_ids" if case.kind == "enc" else "tgt_ids"
    for place, record in enumerate(records):
        start, stop = arrays[f"{case.kind}.off"][place : place + 2]
        for layer, rows in enumerate(record.captured.layers(case.kind)):
            weights = arrays[f"{case.kind}.{layer}.w"][:, start:stop].reshape(rows.shape)
            assert np.allclose(weights, rows, atol=1e-3)
    maps = records[0].captured
    if case.task == "image":
        n = case.model.config.n_positions
        assert arrays["src_len"].tolist() == [n, n]
    else:
        expected = list(maps.source_ids if case.kind == "enc" else maps.target_ids)
        assert arrays[side][: len(expected)].tolist() == expected
        assert arrays["tgt_ids" if case.kind == "enc" else "src_ids"].size == 0
    again = tmp_path / "again"
    command = ("inspect-heads", case.path, "--dump", again, "-i", texts, "-q")
    output_of(*command)
    assert (again / "part-00000.safetensors").read_bytes() == (
        dump / "part-00000.safetensors"
    ).read_bytes()


@of(*ONE_A_KIND)
def test_models_of_one_kind_are_compared(case, texts, tmp_path, language_model, classifier):
    command = ("inspect-diff", case.path, case.path, "-i", texts, "-q", "--format")
    pairs = records_of(*command, "jsonl", "--maps")
    assert all(pair["a"] == pair["b"] and pair["divergence"] == 0.0 for pair in pairs)
    assert len(pairs) == len(inspect_written(case)[0].heads)
    shown = output_of(*command, "text")
    assert {"image": "2,1", "masked": "[MASK]"}.get(case.task, "dogs") in shown
    assert output_of(*command, "svg")
    other = classifier if case.path == language_model else language_model
    says = "compare models of one kind"
    refused("inspect-diff", case.path, other, "-i", texts, "-q", says=says)
    if case.task == "image":
        other, _ = directory(tmp_path / "other", class_token=False, pooling="mean")
        says = "differ in class_token, and so in the patches that heads look at"
        refused("inspect-diff", case.path, other, "-i", texts, "-q", says=says)


@of("language_model", "classifier")
def test_heads_are_followed_while_a_model_is_trained(case, tmp_path):
    pairs = [SentencePair("" if case.kind == "dec" else line, line) for line in TEXTS]
    follower = HeadFollower(tmp_path, case.model, case.directory.tokenizer, pairs, 0)
    for step in (0, 5):
        follower.record(step)
    timeline = heads_over_time(tmp_path)
    assert (timeline.steps, timeline.n_sentences, len(timeline.courses)) == ((0, 5), 3, 4)
    course = timeline.courses[0]
    expected, _ = mean_of(inspect_written(case), course.head, "self")
    assert course.metrics["self"] == expected
    assert output_of("inspect-heads", tmp_path, "--over-time", "--format", "text")


@of("language_model")
def test_a_stream_is_followed_in_blocks(case):
    directory, config = case.directory, replace(case.model.config, target_eos=False)
    pairs = [SentencePair("", line) for line in LINES * 80]
    side = directory.tokenizer.target
    probes = probe_pairs(pairs, directory.tokenizer, config)
    assert len(probes) == 32
    assert {len(ids) for _, _, (_, ids) in probes} == {39}  # as the model takes: `<s>` is the 40th
    text = "".join(pair.target for _, pair, _ in probes)
    assert text.split()[:20] == " ".join(f"{line}\n" for line in LINES * 80).split()[:20]
    short = probe_pairs(pairs[:1], directory.tokenizer, config)
    assert [ids for _, _, (_, ids) in short] == side.encode_batch([f"{LINES[0]}\n"])


def ablate_heads(path, lines, references=(), **settings):
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
    ablation = ablate_heads(path, lines)
    assert ablation.n_tokens == expected.scores.n_tokens
    assert ablation.loss == pytest.approx(expected.scores.loss, abs=1e-5)
    assert ablation.perplexity == pytest.approx(expected.scores.perplexity, rel=1e-4)
    assert [point.n_removed for point in ablation.curve] == [0, 1, 2, 3, 4]
    assert ablation.curve[0].loss == pytest.approx(ablation.loss)
    worst = ablation.by_loss[0]
    assert worst.loss.low <= worst.loss.difference <= worst.loss.high


def test_accuracy_is_measured_without_each_head(classifier, tmp_path):
    lines = [line for line in [*LINES, *TEXTS] if line]
    labels = [LABELS[number % 3] for number in range(len(lines))]
    labeled = [
        text.label for text in label_texts(open_model(classifier, "classify", device="cpu"), lines)
    ]
    expected = 100.0 * score_labels(labeled, labels, LABELS).accuracy
    ablation = ablate_heads(classifier, [*lines, ""], [[*labels, "fair"]])
    assert ablation.n_tokens == len(lines)  # blank texts are left out
    assert ablation.scores == {"accuracy": pytest.approx(expected)}
    assert ablation.curve[0].scores[0].value == pytest.approx(expected)
    for effect in ablation.effects:
        (accuracy,) = effect.scores
        assert accuracy.baseline == pytest.approx(expected)
        assert accuracy.low <= accuracy.difference <= accuracy.high
    for name, content in (("texts", lines), ("labels", labels)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
    options = ("-i", tmp_path / "texts", "--reference", tmp_path / "labels", "-q")
    shown = output_of("inspect-ablate", classifier, *options, "--format", "text")
    assert "Δaccuracy" in shown
    assert "change of the loss per label" in " ".join(shown.split())
    (first, *_) = records_of("inspect-ablate", classifier, *options, "--format", "jsonl")
    assert first["scores"] == {"accuracy": pytest.approx(expected, rel=1e-4)}


@of("masked")
def test_hidden_tokens_are_measured_as_evaluate_measures_them(case, tmp_path):
    lines = [*LINES, "", *LINES]
    scores = evaluate_masked(open_model(case.path, "fill", device="cpu"), lines).scores
    ablation = ablate_heads(case.path, lines)
    assert ablation.n_tokens == scores.n_tokens
    assert ablation.loss == pytest.approx(scores.loss, abs=1e-5)
    assert ablation.scores["accuracy"] == pytest.approx(scores.accuracy)
    assert len(ablation.effects) == 8
    assert ablation.curve[0].loss == pytest.approx(ablation.loss, abs=1e-6)
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n")
    command = ("inspect-ablate", case.path, "-i", tmp_path / "a.txt", "-q", "--format", "text")
    shown = " ".join(output_of(*command).split())
    assert all(word in shown for word in ("nats per token", "perplexity", "accuracy"))


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("language_model", ["--reference"], "--reference: a language model predicts its own text"),
        ("language_model", ["--scores", "2"], "--scores: only for translation models; omit it"),
        (
            "language_model",
            ["--keep", "2", "--write-pruned"],
            "--write-pruned: only for translation models",
        ),
        ("masked", ["--reference"], "--reference: a masked language model predicts its own text"),
        ("classifier", [], "--reference: is missing; name the file with the correct labels"),
        ("classifier", ["--reference", "--reference"], "--reference: a text has one correct label"),
        ("classifier", ["--reference"], "is not one of the labels"),
    ],
    indirect=["case"],
)
def test_what_does_not_fit_the_task_is_one_line(case, texts, tmp_path, options, message):
    files = {"--reference": [texts], "--write-pruned": [tmp_path / "pruned"]}
    arguments = [argument for option in options for argument in (option, *files.get(option, []))]
    refused("inspect-ablate", case.path, "-i", texts, *arguments, "-q", says=message)


def test_a_head_that_reads_one_word_is_found(tmp_path):
    """Head 1 is made to read the token of "dogs" and nothing else, head 0 all alike."""
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(algorithm="word", vocab_size=60))
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=0, n_labels=3,
        max_positions=40, positions="none", scale_embeddings=False,
    )  # fmt: skip
    path = save_model(tmp_path / "saved", Classifier, config, tokenizer, LABELS)
    opened = open_for_inspection(path, tasks=("classify",)).directory
    model = inspected_model(opened)
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
    model_path = stored_model(tmp_path / "made", model, opened.tokenizer, labels=LABELS)
    (record,) = inspect_view("flow", model_path, TEXTS[:1])
    even, reads = record.readings
    place = record.sentence.captured.source_ids.index(dogs)
    assert reads.first == place
    assert reads.shares[place].item() == pytest.approx(1.0, abs=1e-4)
    assert even.shares.std() < 0.05
    shown = output_of("inspect-flow", model_path, TEXTS[0], "--format", "text", "-q")
    assert "enc.0.1" in shown.splitlines()[-1]
    assert "dogs" in shown.splitlines()[-1]
