"""Scores of models, comparisons and speed."""

import json
import math
import os
import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from tests.plugins.corpora_tools.comparison.systems import FIRST, SECOND, SOURCE, THIRD
from tests.plugins.corpora_tools.comparison.systems import REFERENCES as RIGHT
from tformer_cli.artifacts.shortlist_file import save_shortlist
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.evaluate.evaluate import (
    evaluate_model,
    read_texts,
    reference_loss,
    score_hypotheses,
)
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.choices import CompareSettings, TestSetFiles
from tformer_cli.plugins.corpora_tools.benchmark import (
    Setting,
    benchmark,
    percentile,
    stored_precision,
)
from tformer_cli.plugins.corpora_tools.commands.benchmark import (
    MeasuringOptions,
    _notes,
    show_speeds,
)
from tformer_cli.plugins.corpora_tools.compare import compare, read_manifest
from tformer_cli.plugins.interchange.export import export_int8
from tformer_cli.search.engine import Shortlist
from tformer_cli.text.tokenizer import read_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


REFERENCES = ["Ein Mann schläft.", "", "die Straße", "Eine Frau und ein Hund."]


def test_a_model_is_scored_by_its_translations(model):
    evaluation = evaluate_model(model, LINES, [REFERENCES])
    translations = [t.text for t in translate_lines(model, LINES)]
    assert list(evaluation.hypotheses) == translations
    assert evaluation.scores == score_hypotheses(translations, [REFERENCES]).scores
    assert [score.name for score in evaluation.scores] == ["BLEU", "chrF2", "TER"]
    assert evaluation.perplexity == pytest.approx(math.exp(evaluation.loss))


def test_hypotheses_alone_have_no_loss():
    evaluation = score_hypotheses(REFERENCES, [REFERENCES])
    assert evaluation.scores[0].value == pytest.approx(100.0)
    assert evaluation.loss is None
    assert evaluation.perplexity is None


def test_the_loss_is_the_mean_over_all_tokens_with_each_end(model):
    opened = open_model(model)
    network, tokenizer = opened.directory.model, opened.directory.tokenizer
    total, n_tokens = 0.0, 0
    for source, reference in zip(LINES, REFERENCES, strict=True):
        source_ids = torch.tensor([[*tokenizer.encode(source), 3]])
        ids = tokenizer.encode(reference)
        logits = network(
            source_ids, torch.ones_like(source_ids, dtype=torch.bool), torch.tensor([[2, *ids]])
        )
        log_probabilities = logits.log_softmax(-1)[0]
        total -= sum(log_probabilities[i, t].item() for i, t in enumerate([*ids, 3]))
        n_tokens += len(ids) + 1
    assert reference_loss(opened, LINES, REFERENCES) == pytest.approx(total / n_tokens, rel=1e-5)


def test_longer_texts_than_the_model_takes_have_a_loss(model):
    loss = reference_loss(open_model(model), ["dog " * 200], ["Hund " * 200])
    assert math.isfinite(loss)


def test_different_numbers_of_lines_name_the_files(model, tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    first.write_text("a\nb\n")
    second.write_text("a\n")
    with pytest.raises(DataError, match=r"one, .*two: different numbers of lines \(2 and 1\)"):
        read_texts([first, second])
    with pytest.raises(
        DataError, match=r"the source, reference 1: different numbers of lines \(3 and 4\)"
    ):
        evaluate_model(model, LINES[:3], [REFERENCES])


SETTING = Setting(engine="tformer", precision="float32", beam_size=2)


def test_percentiles_are_values_that_were_measured():
    values = [float(i) for i in range(1, 101)]
    assert [percentile(values, p) for p in (1, 50, 95, 99, 100)] == [1.0, 50.0, 95.0, 99.0, 100.0]
    assert percentile([0.2], 50) == percentile([0.2], 99) == 0.2
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


def test_measures_a_setting_in_a_process_of_its_own(model):
    counts = []
    lines = ["A dog", "", "Two men run in the snow."]
    (speed,) = benchmark(model, lines, [SETTING], rounds=1, threads=1, progress=counts.append)
    assert speed.setting == SETTING
    assert speed.n_lines == 2
    assert speed.lines_per_second > 0
    # the fixture's model writes six tokens and an end of sentence
    assert speed.tokens_per_second == pytest.approx(7 * speed.lines_per_second)
    assert 0 < speed.latency_p50 <= speed.latency_p95 <= speed.latency_p99
    assert speed.peak_memory > 20e6
    assert counts == [3]
    assert speed.record()["beam_size"] == 2


def test_integers_are_measured_as_they_are(model, tmp_path):
    export_int8(model, tmp_path / "int8")
    assert stored_precision(model) == "float32"
    assert stored_precision(tmp_path / "int8") == "int8"
    (setting,) = MeasuringOptions(beam_size=[1]).settings(tmp_path / "int8")
    (speed,) = benchmark(tmp_path / "int8", ["A dog"], [setting], rounds=1, threads=1)
    assert speed.record()["precision"] == "int8"
    options = MeasuringOptions(beam_size=[1], precision=["float32"])
    with pytest.raises(ArtifactError, match="holds int8 weights"):
        benchmark(tmp_path / "int8", ["A dog"], options.settings(tmp_path / "int8"), rounds=1)


@pytest.fixture
def talkative(model, tmp_path):
    """The same model with translations that are long enough for 4-grams."""
    path = shutil.copytree(model, tmp_path / "talkative")
    config = json.loads((path / "config.json").read_text())
    config["decoding"] |= {"min_length": 25, "max_length": 30}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_shortlist_is_compared_with_none_in_speed_and_bleu(talkative, tmp_path):
    model, n_tokens = talkative, read_tokenizer(talkative).vocab_size
    path = tmp_path / "few"  # every translation is one of six tokens
    save_shortlist(path, Shortlist(6, np.zeros(n_tokens + 1, np.int64), np.array([], np.int32)))
    lines = ["A dog", "", "Two men run in the snow."]
    unlisted = Setting(engine="tformer", precision="float32", beam_size=2, shortlist="none")
    settings = [unlisted, replace(unlisted, shortlist=str(path))]
    texts = [translation.text for translation in translate_lines(model, lines, beam_size=2)]
    speeds = benchmark(model, lines, settings, references=[texts, texts], rounds=1, threads=1)
    assert [speed.setting for speed in speeds] == settings
    assert speeds[0].bleu.value == pytest.approx(100)
    assert speeds[1].bleu.value < 50
    record = speeds[1].record()
    assert (record["shortlist"], record["bleu"]) == (str(path), speeds[1].bleu.value)
    assert record["bleu_signature"].startswith("nrefs:2|")
    console = Console(file=StringIO(), width=80)
    show_speeds(console, speeds)
    shown = console.file.getvalue()
    assert "BLEU" in shown
    assert re.findall(r"float32 +2 (\w+)", shown)[:2] == ["none", "few"]
    *_, cost = _notes(speeds, 1)
    assert cost.startswith("shortlist few, beam 2: ")
    assert f"BLEU {speeds[1].bleu.value - 100:+.2f}" in cost
    with pytest.raises(DataError, match="--source, --reference 1: different numbers of lines"):
        benchmark(model, lines, settings, references=[["a"]], rounds=1)


def test_a_failed_measurement_is_reported(model):
    with pytest.raises(DataError, match="no lines to translate"):
        benchmark(model, ["", " "], [SETTING])
    other = Setting(engine="tformer", precision="float32", beam_size=0)
    with pytest.raises(UsageError, match="--beam-size: must be 1 to "):
        benchmark(model, ["A dog"], [other], rounds=1)


FAST = CompareSettings(metric=("bleu",), samples=20)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"ref": RIGHT, "a": FIRST, "b": SECOND, "c": THIRD, "src": SOURCE}
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


MANIFEST = """
[news]
reference = "ref"
source = "src"
systems = { a = "a", b = "b" }
[talks]
reference = ["c", "ref"]
systems = { b = "a", a = "b" }
"""


def test_a_manifest_has_a_table_for_each_test_set(here):
    Path("m.toml").write_text(MANIFEST)
    sets = read_manifest(Path("m.toml"))
    assert sets["news"] == TestSetFiles(
        reference=("ref",), source="src", systems={"a": "a", "b": "b"}
    )
    assert [str(path) for path in sets["talks"].paths] == ["c", "ref", "a", "b"]
    news, talks = compare(sets, FAST)
    assert (news.test_set, talks.test_set) == ("news", "talks")
    assert news.systems == talks.systems == ("a", "b")
    assert news.metrics[0].scores[0].value > news.metrics[0].scores[1].value
    assert talks.metrics[0].signature.startswith("nrefs:2|")
    assert talks.metrics[0].scores[0].value < talks.metrics[0].scores[1].value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.toml: has no test set; write a table for each"),
        ("x = 1", "m.toml: x: must be a table, [x]; correct it"),
        ("[x", "m.toml: is not TOML ("),
        ("[x]\nreference = 'ref'", "m.toml: x.systems: name at least one; correct it"),
        ("[x]\nreference = 'ref'\nsystems = {}", "x.systems: name at least one; correct it"),
        (
            "[x]\nsystems = {a = 'a', b = 'b'}",
            "x.reference: is missing; name a file, or a test_set;",
        ),
        ("[x]\nrefrence = 'r'", 'x.refrence: unknown key; did you mean "reference"?; correct it'),
        (
            "[x]\ntest_set = 'wmt20'\nsource = 's'\nsystems = {a = 'a', b = 'b'}",
            "x.test_set: has source and references; omit it or those; correct it",
        ),
        (
            MANIFEST.replace("b = ", "z = ", 1),
            "news.systems: test sets have different systems: b is missing here, but talks has it; ",
        ),
        (
            MANIFEST.replace('b = "a", ', ""),
            "talks.systems: test sets have different systems: b is missing here, but news has it; ",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(here, text, message):
    Path("m.toml").write_text(text)
    with pytest.raises(DataError) as refused:
        read_manifest(Path("m.toml"))
    assert message in str(refused.value)


def sets(reference=("ref",), source=None, **systems):
    return {"": TestSetFiles(reference=reference, source=source, systems=systems)}


def test_the_baseline_comes_first_and_frequencies_are_of_the_training_text(here):
    settings = CompareSettings(
        metric=("chrf",),
        samples=20,
        baseline="c",
        train_text="train",
        examples=0,
    )
    Path("train").write_text("The old cat .\nThe cat\n")
    (comparison,) = compare(sets(a="a", b="b", c="c"), settings)
    assert comparison.systems == ("c", "a", "b")
    # "The" and "cat" are there twice, "old" and "." once, everything else never
    assert [(bucket.label, bucket.size) for bucket in comparison.words] == [
        ("0", 12 * 60 - 12),
        ("1", 120),
        ("2", 72),
    ]


def test_a_model_directory_translates_the_source(here, model):
    Path("few").write_text("A man\nA dog\n")
    Path("few.ref").write_text("Ein Mann\nEin Hund\n")
    messages = []
    systems = {"model": str(model), "copy": "few.ref"}
    (comparison,) = compare(sets(("few.ref",), "few", **systems), FAST, tell=messages.append)
    assert messages[0] == f"translating 2 lines with {model}"
    assert messages[-1] == "testing 1 of 2 systems against model"
    texts = [translation.text for translation in translate_lines(model, ["A man", "A dog"])]
    shown = {(item.line, item.baseline_text, item.text) for item in comparison.differences}
    assert shown == {(1, texts[0], "Ein Mann"), (2, texts[1], "Ein Hund")}
    with pytest.raises(UsageError, match=r"--source: is missing; .* is a model: name its text"):
        compare(sets(("few.ref",), **systems), FAST)


def test_what_does_not_fit_is_refused(here, monkeypatch):
    Path("short").write_text("one\n")
    with pytest.raises(DataError, match=r"ref, short: different numbers of lines \(60 and 1\);"):
        compare(sets(a="a", short="short"), FAST)
    with pytest.raises(UsageError, match="--metric: must be of bleu, chrf, ter, comet; found sari"):
        CompareSettings(metric=("sari",))
    with pytest.raises(UsageError, match=r"ter, comet; found nothing$"):
        CompareSettings(metric=("bleu,",))
    with pytest.raises(UsageError, match="--baseline: d is no system; name one of a, b"):
        compare(sets(a="a", b="b"), CompareSettings(baseline="d"))
    monkeypatch.setattr(
        "tformer_cli.plugins.corpora_tools.comparison.comet.find_spec", lambda name: None
    )
    with pytest.raises(UsageError, match="--metric: comet needs the package unbabel-comet"):
        compare(sets(a="nowhere", b="nowhere"), CompareSettings(metric=("comet",)))
    monkeypatch.setattr(
        "tformer_cli.plugins.corpora_tools.comparison.comet.find_spec", lambda name: name
    )
    with pytest.raises(UsageError, match="--metric: comet needs the source sentences; give --sour"):
        compare(sets(a="a", b="b"), CompareSettings(metric=("comet",)))


FOLDER = os.environ.get("TFORMER_SYSTEMS")
PUBLISHED = "bergamot-base-memory"


@pytest.mark.skipif(FOLDER is None, reason="TFORMER_SYSTEMS names no folder of systems")
def test_the_published_bleu_of_a_real_system():
    """FLORES dev, English to German, as Mozilla's evaluation published it."""
    stem = f"{FOLDER}/flores-dev."
    systems = {name: f"{stem}{name}.de" for name in (PUBLISHED, "google", "microsoft")}
    (comparison,) = compare(sets((f"{stem}de",), **systems), FAST)
    published = float(Path(f"{stem}{PUBLISHED}.de.bleu").read_text())
    assert round(comparison.metrics[0].scores[0].value, 1) == published
