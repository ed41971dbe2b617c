import json
import os
import shutil
import subprocess
import sys

import pytest

from tests import commands
from tests.commands import under

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


@pytest.fixture
def files(tmp_path):
    texts = {
        "source": LINES,
        "one": ["Ein Mann schläft.", "", "die Straße", "Eine Frau und ein Hund."],
        "two": ["Ein Mann schlief.", "x", "die Straße", "Eine Frau und ein Hund."],
        "short": ["Ein Mann schläft."],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


record_of, refused, run = under("evaluate", "record_of", "refused", "run")


def test_hypotheses_are_scored_as_json(files):
    record = record_of(
        "--hypothesis", files / "two", "--reference", files / "one", "--format", "json"
    )
    assert set(record) == {"schema", "lines", "bleu", "chrf", "ter"}
    assert record["lines"] == 4
    assert record["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    both = run(
        "--hypothesis", files / "two", "--reference", files / "one", "--reference", files / "two",
        "--format", "json", "--tokenize", "intl", "--lowercase",
    )  # fmt: skip
    record = json.loads(both.stdout)
    assert record["bleu"]["score"] == pytest.approx(100.0)
    assert record["bleu"]["signature"].startswith("nrefs:2|case:lc|eff:no|tok:intl")


def test_intervals_are_those_of_sacrebleu(files):
    hypotheses, reference = files / "two", files / "one"
    words = ["--hypothesis", hypotheses, "--reference", reference, "--confidence"]
    record = record_of(*words, "--format", "json")
    result = subprocess.run(  # only BLEU: sacreBLEU's bootstrap of chrF and TER fails
        [sys.executable, "-m", "sacrebleu", reference, "-i", hypotheses, "--confidence"],
        env={**os.environ, "SACREBLEU_SEED": "12345"},
        capture_output=True,
        check=True,
    )
    score = json.loads(result.stdout)
    assert record["bleu"]["mean"] == pytest.approx(score["confidence_mean"], abs=0.06)
    assert record["bleu"]["interval"] == pytest.approx(score["confidence_var"], abs=0.06)
    rows = run(*words).stdout.splitlines()
    mean, half = record["bleu"]["mean"], record["bleu"]["interval"]
    assert rows[3].startswith("BLEU mean")
    assert f"{mean:.2f}  95 %" in rows[3]
    assert f"{mean - half:.2f} to {mean + half:.2f}" in rows[3]


def test_a_model_has_loss_and_perplexity_too_and_writes_its_translations(model, files):
    record = record_of(
        model, "--source", files / "source", "--reference", files / "one", "--format", "json", "-o",
        files / "translations", "--beam-size", "1",
    )  # fmt: skip
    assert record["perplexity"] > 1.0
    assert record["loss"] > 0.0
    assert len((files / "translations").read_text(encoding="utf-8").splitlines()) == 4


def test_the_table_is_not_cut_in_a_pipe(model, files):
    done = run(model, "--source", files / "source", "--reference", files / "one", "--quiet")
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == [
        "BLEU",
        "chrF2",
        "TER",
        "loss",
        "perplexity",
    ]
    assert "smooth:exp|version:" in rows[0]
    assert done.stderr == ""


ENGLISH = ["The old man is in the bed.", "He is not at the door with her."] * 4
FRENCH = ["Le vieil homme est dans le lit.", "Il ne dort pas avec elle."] * 4


@pytest.fixture
def english_to_french(model, tmp_path):
    """A model that says which languages it translates, and a text of each."""
    path = tmp_path / "model"
    shutil.copytree(model, path)
    config = json.loads((path / "config.json").read_text())
    config |= {"source_language": "en", "target_language": "fr"}
    (path / "config.json").write_text(json.dumps(config))
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("source", "reference", "warning"),
    [
        ("en", "fr", ""),
        (
            "fr",
            "en",
            (
                'warning: --source: looks like "fr" and --reference like "en", but the model '
                'translates "en" to "fr"; swap the two files\n'
            ),
        ),
        (
            "en",
            "en",
            "warning: --reference: 100% of its lines are those of --source; name the translation\n",
        ),
    ],
)
def test_swapped_or_equal_sides_are_warned_of(english_to_french, source, reference, warning):
    here = english_to_french.parent
    options = ["--quiet", "--beam-size", "1", "--too-long", "truncate"]
    done = run(
        english_to_french, "--source", here / source, "--reference", here / reference, *options
    )
    assert (done.exit_code, done.stderr) == (0, warning)


def test_a_hypothesis_that_is_the_reference_is_fine(english_to_french):
    text = english_to_french.parent / "fr"
    done = run("--hypothesis", text, "--reference", text)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "100.00" in done.stdout


def gate(*limits):
    return [part for limit in limits for part in ("--fail-under", limit)]


def test_a_score_at_its_limit_passes_and_one_below_it_fails(files):
    words = ["--hypothesis", files / "two", "--reference", files / "one"]
    scores = record_of(*words, "--format", "json")
    bleu, chrf = scores["bleu"]["score"], scores["chrf"]["score"]
    assert (scores["schema"], run(*words, *gate(f"bleu={bleu!r}")).exit_code) == (
        "tformer.scores/1",
        0,
    )
    plain, failed = run(*words), run(*words, *gate("bleu=99.5", f"chrf={chrf!r}", "chrf=100"))
    assert failed.exit_code == 1
    # The scores are printed as always
    assert failed.stdout == plain.stdout
    assert failed.stderr.splitlines()[-1] == (
        f"error: --fail-under: bleu {bleu:.2f} < 99.5, chrf {chrf:.2f} < 100"
    )


def test_a_score_just_below_its_limit_is_not_shown_as_the_limit(files):
    words = ["--hypothesis", files / "two", "--reference", files / "one"]
    value = record_of(*words, "--format", "json")["bleu"]["score"]
    limit = round(value, 2) if round(value, 2) > value else value + 1e-9
    failed = run(*words, *gate(f"bleu={limit!r}"))
    assert failed.exit_code == 1
    assert f"bleu {value!r} <" in failed.stderr


@pytest.mark.parametrize(
    ("limit", "doubt"),
    [
        ("bleu=0.3", "--fail-under bleu=0.3: bleu goes from 0 to 100; did you mean bleu=30?"),
        ("chrf=0", "--fail-under chrf=0: chrf goes from 0 to 100"),
        ("bleu=1.5", ""),
    ],
)
def test_a_limit_that_looks_like_a_share_is_questioned(files, limit, doubt):
    text = files / "one"
    done = run("--hypothesis", text, "--reference", text, *gate(limit))
    assert (done.exit_code, done.stderr) == (0, doubt and f"warning: {doubt}\n")


@pytest.mark.parametrize("name", ["ter", "perplexity"])
def test_what_is_better_lower_has_a_limit_above(model, files, name):
    words = [model, "-i", files / "source", "--reference", files / "one", "-q"]
    record = record_of(*words, "--format", "json")
    value = record[name]["score"] if name == "ter" else record[name]
    assert run(*words, "--fail-over", f"{name}={value!r}").exit_code == 0
    failed = run(*words, "--fail-over", f"{name}={value / 2!r}", *gate("bleu=100"))
    assert failed.exit_code == 1
    assert failed.stderr.startswith("error: --fail-under, --fail-over: bleu ")
    assert f", {name} {value:.2f} > {value / 2:g}" in failed.stderr
    refused(*words, *gate(f"{name}=3"), says=f"{name} is better lower; write --fail-over {name}=3")


def test_labels_and_texts_have_limits_of_their_own(zoo, tmp_path):
    folder = zoo.inputs
    labels = ["evaluate", zoo["classifier"], "-i", folder / "text.en"]
    labels += ["--reference", folder / "labels", "-q"]
    text = ["evaluate", zoo["language_model"], "--text", folder / "text.en", "-q"]
    gaps = ["evaluate", zoo["masked"], "--text", folder / "text.en", "-q"]
    for words, option, names in (
        (labels, "--fail-under", ("accuracy", "macro_f1")),
        (text, "--fail-over", ("perplexity", "bits_per_byte", "loss")),
        (gaps, "--fail-under", ("accuracy",)),
    ):
        record = commands.record_of(*words, "--format", "json")
        assert record["schema"] == "tformer.scores/1"
        for name in names:
            value, sign = record[name], 1 if option == "--fail-under" else -1
            assert commands.run(*words, option, f"{name}={value!r}").exit_code == 0
            failed = commands.run(*words, option, f"{name}={value + sign}")
            assert failed.exit_code == 1, name
            assert failed.stderr.splitlines()[-1].startswith(f"error: {option}: {name} ")
