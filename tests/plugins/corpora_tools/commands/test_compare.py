import csv
import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.test_app import only_line, run, run_here
from tests.models import save_random
from tests.plugins.corpora_tools.comparison.systems import FIRST, REFERENCES, SECOND, SOURCE, THIRD
from tests.policy import POLICY
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.cli.app import app
from tformer_cli.kinds.lines.classify import classify_lines
from tformer_cli.kinds.opening import open_model

SYSTEMS = ("--reference", "ref", "first=a", "b", "--samples", "20", "--quiet")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"ref": REFERENCES, "a": FIRST, "b": SECOND, "c": THIRD, "src": SOURCE}
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def compare(*arguments):
    return run_here("compare", *arguments)


def test_tables_and_sentences_are_on_stdout():
    done = compare(*SYSTEMS, "-i", "src", "--examples", "1")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "60 sentences"
    assert lines[2] == "BLEU"
    assert lines[3].split()[:2] == ["System", "BLEU"]
    assert lines[4].split()[:3] == ["first", "(baseline)", "91.13"]
    assert lines[5].split()[:2] == ["b", "76.04"]
    assert lines[6].startswith("nrefs:1|bs:20|seed:12345|case:mixed|eff:no|tok:13a|")
    assert "F1 of words by their frequency" in lines
    assert max(len(line) for line in lines if "|" not in line) <= 80  # signatures are whole
    assert done.stdout.count("\nsource ") == 1


def test_json_says_how_and_is_the_same_for_the_same_seed():
    options = ("--format", "json", "--test", "paired-approximate-randomization", "--seed", "9")
    first, again = compare(*SYSTEMS, *options), compare(*SYSTEMS, *options)
    assert first.stdout == again.stdout
    record = json.loads(first.stdout)
    assert record["schema"] == "tformer.compare/1"
    assert (record["test"], record["samples"], record["seed"]) == (
        *("paired-approximate-randomization", 20, 9),
    )
    (found,) = record["test_sets"]
    assert found["systems"] == ["first", "b"]
    assert [metric["name"] for metric in found["metrics"]] == ["BLEU", "chrF2", "TER"]
    score = found["metrics"][0]["scores"][1]
    assert score["wins"] == {"better": 0, "worse": 45, "equal": 15}
    assert 0.0 < score["p_value"] <= 1.0
    assert "|ar:20|" in found["metrics"][0]["signature"]


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("o.md", "# Comparison of systems\n"),
        ("o.tex", "% Comparison of systems. Needs "),
        ("o.html", "<!DOCTYPE html>\n"),
        ("o.json", '{"schema": "tformer.compare/1"'),
        ("o.txt", "60 sentences\n"),
        ("o.svg", '<svg xmlns="http://www.w3.org/2000/svg"'),
        pytest.param("o.pdf", "%PDF-1.7", marks=pytest.mark.needs("pdf")),
    ],
)
def test_the_format_follows_the_files_name(name, beginning):
    done = compare(*SYSTEMS, "-o", name)
    assert (done.exit_code, done.stdout) == (0, "")
    text = Path(name).read_text(encoding="utf-8", errors="replace")
    assert text.startswith(beginning)
    assert (POLICY in text) == name.endswith(".html")


def test_csv_has_the_numbers_of_json():
    record = json.loads(compare(*SYSTEMS, "--format", "json").stdout)
    assert compare(*SYSTEMS, "-o", "o.csv").exit_code == 0
    with Path("o.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    (test_set,) = record["test_sets"]
    scores = [
        (metric["name"], system, score)
        for metric in test_set["metrics"]
        for system, score in zip(test_set["systems"], metric["scores"], strict=True)
    ]
    assert len(rows) == len(scores) == 6
    for row, (metric, system, score) in zip(rows, scores, strict=True):
        assert (row["metric"], row["system"]) == (metric, system)
        assert float(row["value"]) == score["value"]
        assert row["p_value"] == ("" if score["p_value"] is None else str(score["p_value"]))
        assert row["equals_baseline"] == ("" if score["wins"] is None else "False")
        assert row["better"] == ("" if score["wins"] is None else str(score["wins"]["better"]))


def test_the_order_the_baseline_and_the_metrics_are_as_asked():
    done = compare(
        *SYSTEMS, "c", "--baseline", "c", "--metric", "ter", "--metric", "chrf", "--format", "json"
    )
    (found,) = json.loads(done.stdout)["test_sets"]
    assert found["systems"] == ["c", "first", "b"]
    assert [metric["name"] for metric in found["metrics"]] == ["TER", "chrF2"]
    assert found["metrics"][0]["less_is_better"]


def test_metrics_may_be_separated_by_commas():
    record = json.loads(compare(*SYSTEMS, "--metric", "ter, chrf", "--format", "json").stdout)
    assert [metric["name"] for metric in record["test_sets"][0]["metrics"]] == ["TER", "chrF2"]


def test_one_system_is_scored_alone():
    arguments = ("--reference", "ref", "c", "--metric", "bleu", "--samples", "20")
    done = compare(*arguments)
    assert (done.exit_code, done.stderr) == (0, "scoring c\n")
    lines = done.stdout.splitlines()
    assert lines[3] == "System   BLEU   Mean ± 95 %"
    assert lines[4].split()[0] == "c"
    (found,) = json.loads(compare(*arguments, "--format", "json").stdout)["test_sets"]
    (score,) = found["metrics"][0]["scores"]
    assert score["interval"] > 0.0
    assert (score["p_value"], score["equals_baseline"], score["wins"]) == (None, None, None)
    assert found["differences"] == []


def test_a_copy_of_the_baseline_is_said_to_be_one_and_not_marked():
    copied = ("--reference", "ref", "a", "same=a", "b", "--metric", "bleu", "-q")
    lines = compare(*copied).stdout.splitlines()
    assert lines[5].split()[5:7] == ["+0.00", "–"]
    assert lines[6].split()[6] == "0.0010*"
    assert lines[8] == "No p for same: no sentence differs from the baseline."
    (found,) = json.loads(compare(*copied, "--format", "json").stdout)["test_sets"]
    scores = found["metrics"][0]["scores"]
    assert [score["equals_baseline"] for score in scores] == [None, True, False]
    assert [score["p_value"] for score in scores] == [None, None, 1 / 1001]
    short = ("evaluate", "--reference", "ref", "--hypothesis", "a", "--baseline")
    for name, reason in (("a", "no sentence differs from the baseline"), ("b", "")):
        record = json.loads(run_here(*short, name, "--format", "json").stdout)["bleu"]
        assert (record["equals_baseline"], record["untested"]) == (bool(reason), reason)
        assert (f"no p: {reason}  nrefs" in run_here(*short, name).stdout) == bool(reason)


def test_a_bleu_of_short_lines_has_no_p_and_a_hint():
    Path("short").write_text("A cat.\nA dog.\n")
    Path("others").write_text("A cat.\nYes.\n")
    copied = ("--reference", "short", "short", "others", "--metric", "bleu", "-q")
    lines = compare(*copied).stdout.splitlines()
    assert lines[5].split()[5:7] == ["+0.00", "–"]
    assert " ".join(lines[7:9]).startswith("No p for others: the change is 0 in every resample. B")
    done = run_here("evaluate", "--reference", "short", "--hypothesis", "others")
    assert "BLEU needs 4-grams, and no line of a translation has" in done.stderr


def test_several_test_sets_come_from_a_manifest():
    Path("m.toml").write_text(
        "[one]\nreference='ref'\nsystems={a='a',b='b'}\n[two]\nreference='c'\nsystems={a='a',b='b'}"
    )
    done = compare("--manifest", "m.toml", "--metric", "bleu", "--samples", "20", "-q")
    assert done.stdout.startswith("All test sets\n\nBLEU\nSystem    one    two   Mean\n")
    assert "\none: 60 sentences\n" in done.stdout
    assert "\ntwo: 60 sentences\n" in done.stdout


def test_one_text_may_be_stdin():
    options = ("compare", "--reference", "ref", "a", "last=-", "--samples", "20", "--metric")
    done = run(*options, "bleu", "-q", input=Path("b").read_bytes())
    assert done.stderr == b""
    assert b"\nlast " in done.stdout
    twice = run(*options, "bleu", "new=-", input=b"")
    assert "stdin can be read only once" in only_line(twice.stderr.decode())


def test_bytes_that_are_not_utf8_are_counted_in_one_warning():
    lines = Path("b").read_bytes().splitlines(keepends=True)
    Path("b").write_bytes(b"".join([lines[0].replace(b"The", b"T\xe9e"), *lines[1:]]))
    done = compare(*SYSTEMS, "--metric", "bleu")
    assert done.exit_code == 0
    assert done.stderr == (
        "warning: 1 line with bytes that are not UTF-8; they were read as U+FFFD\n"
    )


def test_stdout_may_not_be_a_file_of_the_manifest():
    Path("m.toml").write_text("[x]\nreference = 'ref'\nsystems = {a = 'a', c = 'c'}\n")
    before = Path("c").read_bytes()
    with Path("c").open("ab") as stream:
        import subprocess

        done = subprocess.run(
            [sys.executable, "-m", "tformer_cli", "compare", "--manifest", "m.toml"],
            stdout=stream,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert "stdout" in only_line(done.stderr.decode())
    assert Path("c").read_bytes() == before


def test_names_that_a_terminal_without_unicode_cannot_show_are_written_otherwise():
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("compare", *SYSTEMS, "ü=c", "--metric", "bleu", env=env)
    assert done.returncode == 0
    assert b"Mean +- 95 %" in done.stdout


def test_the_short_form_is_evaluate_with_a_baseline():
    long = compare(*SYSTEMS[:4], "--format", "json", "-q")
    short = CliRunner().invoke(
        app,
        [
            *("evaluate", "--hypothesis", "b", "--reference", "ref", "--baseline", "a"),
            *("--format", "json"),
        ],
    )
    assert short.exit_code == 0, short.stderr
    record = json.loads(short.stdout)
    for metric in json.loads(long.stdout)["test_sets"][0]["metrics"]:
        before, after = metric["scores"]
        found = record[metric["name"].lower().removesuffix("2")]
        assert found["baseline"] == before["value"]
        assert found["score"] == pytest.approx(after["value"])
        assert found["p_value"] == after["p_value"]
        assert found["test"] == metric["signature"]


@pytest.fixture
def labels(here, classifier):
    """Texts, their right labels, and those of the classifier and of nobody."""
    texts = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A dog."] * 5
    given = [
        result.label
        for result in classify_lines(open_model(classifier, "classify", device="cpu"), texts)
    ]
    names = read_config(classifier).labels
    right = [label if number % 3 else names[0] for number, label in enumerate(given)]
    for name, lines in (("t", texts), ("right", right), ("mine", given), ("none", ["?"] * 20)):
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return sum(label == answer for label, answer in zip(given, right, strict=True))


def test_labels_of_files_and_models_are_compared(labels, classifier):
    systems = ("--labels", "--reference", "right", "none", "mine", f"model={classifier}")
    done = compare(*systems, "-i", "t", "-q", "--format", "json", "--device", "cpu")
    assert (done.exit_code, done.stderr) == (0, "")
    record = json.loads(done.stdout)
    assert record["schema"] == "tformer.comparelabels/1"
    assert [system["name"] for system in record["systems"]] == ["none", "mine", "model"]
    none, mine, model = record["systems"]
    assert none["measures"][0]["value"] == 0.0
    assert mine["measures"][0]["value"] == 5.0 * labels
    assert mine["wins"] == {"better": labels, "worse": 0, "equal": 20 - labels}
    assert {**model, "name": "mine"} == mine
    shown = compare(*systems[:5], "--baseline", "mine", "-q")
    assert shown.stdout.startswith("20 examples\n\naccuracy\nSystem")
    assert [line.split()[0] for line in shown.stdout.splitlines()[4:6]] == ["mine", "none"]
    rows = compare(*systems[:5], "--format", "csv", "-q").stdout.splitlines()
    assert rows[:2] == [
        "system,measure,value,difference,p_value,low,high",
        "none,accuracy,0.0,,,,",
    ]
    assert rows[3].startswith(f"mine,accuracy,{5.0 * labels},{5.0 * labels},")
    for form in ("markdown", "latex", "html"):
        page = compare(*systems[:5], "--format", form, "-q").stdout
        assert "that only the system, or only the baseline, labels right" in page
        assert "macro F1" in page


@pytest.fixture
def groups():
    """Folders of two trainings by several seeds, one of them shorter."""
    for name, steps, seeds in (("base", 60, (1, 2, 10)), ("other", 45, (1, 2))):
        for seed in seeds:
            run = save_random(
                f"{name}/seed-{seed}", seed=seed + len(name), decoding={"max_length": 8}
            )
            state = {"step": steps, "tokens": 9, "seconds": 1.5, "is_finished": True, "reason": ""}
            checkpoint = run / f"checkpoints/step-{steps:06d}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "state.json").write_text(json.dumps(state))
    Path("few.src").write_text("A man sleeps.\nTwo dogs run.\nthe street\n")
    Path("few.ref").write_text("A man runs.\nTwo dogs sleep.\nthe snow\n")
    return ("base", "other", "-i", "few.src", "--reference", "few.ref", "--metric", "chrf")


def test_a_folder_of_seeds_is_one_system(groups):
    record = json.loads(compare(*groups, "--format", "json", "-q").stdout)
    assert record["test"] == "welch-over-seeds-and-sentences"
    (found,) = record["test_sets"]
    assert found["systems"] == ["base", "other"]
    assert [[run["name"] for run in runs] for runs in found["runs"]] == [
        ["seed-1", "seed-2", "seed-10"],
        ["seed-1", "seed-2"],
    ]
    ((base, other),) = [metric["scores"] for metric in found["metrics"]]
    for name, score in (("base", base), ("other", other)):
        for seed, value in zip(("seed-1", "seed-2"), score["values"], strict=False):
            alone = compare(f"{name}/{seed}", *groups[2:], "--format", "json", "-q").stdout
            metric = json.loads(alone)["test_sets"][0]["metrics"][0]
            assert value == metric["scores"][0]["value"]
        assert score["value"] == pytest.approx(sum(score["values"]) / len(score["values"]))
    assert (base["p_value"], base["wins"]) == (None, None)
    assert 0.0 < other["p_value"] <= 1.0


def test_a_table_of_seeds_lists_each_run_if_asked(groups):
    done = compare(*groups, "--each-seed")
    rows = [line.split()[:4] for line in done.stdout.splitlines()[3:10]]
    assert rows[0] == ["System", "Runs", "Steps", "chrF2"]
    names = ["base", "seed-1", "seed-2", "seed-10", "other", "seed-1"]
    assert [row[0] for row in rows[1:]] == names
    assert rows[1][:3] == ["base", "3", "60"]
    assert "(base 60; other 45)" in done.stderr
    assert done.stderr.startswith("warning: the runs trained for different numbers of steps")
    assert "seed-" not in compare(*groups, "-q", "--examples", "0").stdout
    for name in ("o.tex", "o.md", "o.html"):
        assert compare(*groups, "--each-seed", "-q", "-o", name).exit_code == 0
        assert "seed-10" in Path(name).read_text()


def test_randomization_of_single_runs_is_refused_for_seeds(groups):
    done = compare(*groups, "--test", "paired-approximate-randomization", "-q")
    assert (done.exit_code, done.stdout) == (2, "")
    assert only_line(done.stderr) == (
        "error: --test: paired-approximate-randomization is only for single runs, not for seeds; "
        "omit it"
    )
    # Lengths of single models are their own business
    assert compare("base/seed-1", "o=other/seed-1", *groups[2:]).stderr.startswith("translating")
