import os
from pathlib import Path

import pytest

from tests.evaluate.comparison.systems import FIRST, REFERENCES, SECOND, SOURCE, THIRD
from tformer_cli.errors import DataError, UsageError
from tformer_cli.evaluate.compare import compare, read_manifest
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.metrics.choices import CompareSettings, TestSetFiles

FAST = CompareSettings(metric=("bleu",), samples=20)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"ref": REFERENCES, "a": FIRST, "b": SECOND, "c": THIRD, "src": SOURCE}
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
    assert [str(one) for one in sets["talks"].paths] == ["c", "ref", "a", "b"]
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
    (found,) = compare(sets(a="a", b="b", c="c"), settings)
    assert found.systems == ("c", "a", "b")
    # "The" and "cat" are there twice, "old" and "." once, everything else never
    assert [(bucket.label, bucket.size) for bucket in found.words] == [
        ("0", 12 * 60 - 12),
        ("1", 120),
        ("2", 72),
    ]


def test_a_model_directory_translates_the_source(here, model):
    Path("few").write_text("A man\nA dog\n")
    Path("few.ref").write_text("Ein Mann\nEin Hund\n")
    told = []
    systems = {"model": str(model), "copy": "few.ref"}
    (found,) = compare(sets(("few.ref",), "few", **systems), FAST, tell=told.append)
    assert told[0] == f"translating 2 lines with {model}"
    assert told[-1] == "testing 1 of 2 systems against model"
    texts = [one.text for one in translate_lines(model, ["A man", "A dog"])]
    shown = {(one.line, one.baseline_text, one.text) for one in found.differences}
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
    monkeypatch.setattr("tformer_cli.metrics.comet.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--metric: comet needs the package unbabel-comet"):
        compare(sets(a="nowhere", b="nowhere"), CompareSettings(metric=("comet",)))
    monkeypatch.setattr("tformer_cli.metrics.comet.find_spec", lambda name: name)
    with pytest.raises(UsageError, match="--metric: comet needs the source sentences; give --sour"):
        compare(sets(a="a", b="b"), CompareSettings(metric=("comet",)))


FOLDER = os.environ.get("TFORMER_SYSTEMS")
PUBLISHED = "bergamot-base-memory"


@pytest.mark.skipif(FOLDER is None, reason="TFORMER_SYSTEMS names no folder of systems")
def test_the_published_bleu_of_a_real_system():
    """FLORES dev, English to German, as Mozilla's evaluation published it."""
    stem = f"{FOLDER}/flores-dev."
    systems = {name: f"{stem}{name}.de" for name in (PUBLISHED, "google", "microsoft")}
    (found,) = compare(sets((f"{stem}de",), **systems), FAST)
    published = float(Path(f"{stem}{PUBLISHED}.de.bleu").read_text())
    assert round(found.metrics[0].scores[0].value, 1) == published
