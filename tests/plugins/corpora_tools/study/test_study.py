"""`tformer study`: variants × seeds, resumed after a kill, and one table."""

import csv
import io
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import output_of, record_of, refused, run
from tests.recipes import tiny_translator
from tformer_cli.files.regular_file import hash_file
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.plugins.corpora_tools.comparison.lengths import read_length
from tformer_cli.plugins.corpora_tools.study.plan import read_study
from tformer_cli.plugins.corpora_tools.study.report import (
    RunFacts,
    StudyReport,
    VariantMeasure,
    VariantRow,
    report_study,
)
from tformer_cli.plugins.corpora_tools.study.worker import __file__ as worker
from tformer_cli.recipe import load_recipe

SHORT = {"training__max_steps": 3, "training__checkpoint_every": 1, "training__report_every": 1}
VARIANTS = """
[variants.base]
[variants.one]
model.n_heads = 1
"""


@pytest.fixture
def write_study(tmp_path, monkeypatch):
    """Writes the study of a tiny recipe, with some of its keys changed."""
    monkeypatch.chdir(tmp_path)

    def write(text=VARIANTS, seeds="[1, 2]", **keys):
        recipe = tiny_translator(tmp_path)(**{**SHORT, **keys})
        Path("tiny.toml").write_text(recipe.to_toml())
        Path("s.toml").write_text(f'recipe = "tiny.toml"\nseeds = {seeds}\n{text}')
        return "study", "s.toml", "-o", "out", "--device", "cpu", "--jobs", "2"

    return write


def test_one_table_of_all_runs_which_compare_and_plot_take_as_they_are(write_study):
    command = write_study()
    done = run(*command)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("2 seeds, 15 validation examples\n")
    assert "out/one/seed-2: finished after 3 steps" in done.stderr
    assert done.stderr.count(" (4 of 4 runs)\n") == 1
    record = record_of(*command, "--format", "json", "-q")
    base, other = record["variants"]
    assert (record["schema"], other["changes"]) == ("tformer.study/1", {"model.n_heads": 1})
    assert base["measures"][0]["p_value"] is None
    # The same numbers from the folders
    pairs = output_of("make-corpus", "c", "--pairs", "300", "-q") and Path("c")
    texts = ["--source", pairs / "valid.en", "--reference", pairs / "valid.fr"]
    found = record_of(
        *("compare", "out/base", "out/one", *texts, "--metric", "bleu,chrf", "--format", "json"),
        *("--device", "cpu", "-q"),
    )
    for place, metric in enumerate(found["test_sets"][0]["metrics"]):
        for row, score in zip((base, other), metric["scores"], strict=True):
            own = row["measures"][place]
            assert own["values"] == score["values"]
            assert (own["deviation"], own["p_value"]) == (score["deviation"], score["p_value"])
    for row in (base, other):
        folder = Path("out") / row["name"]
        recipe = load_recipe(str(folder / "seed-1/recipe.toml"))
        config = json.loads((folder / "seed-1/config.json").read_text())
        assert row["parameters"] == parameter_count(recipe.model, config["vocab_size"])
        assert recipe.model.n_heads == (1 if row is other else 2)
        for facts in row["runs"]:
            directory = folder / f"seed-{facts['seed']}"
            length = read_length(directory)
            assert (facts["steps"], facts["tokens"]) == (3, length.tokens)
            assert facts["weights"] == hash_file(directory / "model.safetensors")
    assert Path("out/curves.svg").is_file()
    assert "Changes of the recipe" in Path("out/study.html").read_text()
    # The same command again trains nothing
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("seed-*/**/*")}
    assert output_of(*command) == done.stdout
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("seed-*/**/*")} == before
    rows = list(csv.reader(io.StringIO(output_of(*command, "--format", "csv", "-q"))))
    assert rows[0][:4] == ["variant", "parameters", "seeds", "steps"]
    assert float(rows[2][rows[0].index("chrf_p")]) == other["measures"][1]["p_value"]
    latex = output_of(*command, "--format", "latex", "-q")
    assert "$\\pm$" in latex
    assert "| one | " in output_of(*command, "--format", "markdown", "-q")


@pytest.mark.parametrize(
    ("base", "other", "p_value", "marked"),
    [
        (43.0, 40.0, 0.45, []),
        (40.0, 43.0, 0.45, []),
        (43.0, 40.0, 0.01, [0]),
        (40.0, 43.0, 0.01, [1]),
        (40.0, 43.0, None, []),
    ],
)
def test_the_best_is_marked_only_if_the_test_tells_it_apart(base, other, p_value, marked):
    rows = [
        VariantRow(
            name=str(mean),
            changes={},
            parameters=1,
            runs=(RunFacts(seed=1, steps=1, tokens=1, minutes=1.0, weights=""),),
            measures=(
                VariantMeasure(
                    name="BLEU", values=(mean,), mean=mean, deviation=1.0, interval=9.0, p_value=p
                ),
            ),
        )
        for mean, p in ((base, None), (other, p_value))
    ]
    report = StudyReport(recipe="r", examples="2 examples", seeds=(1,), variants=tuple(rows))
    table = report.table()
    column = table.head.index("BLEU")
    assert [place for place, row in enumerate(table.rows) if row[column].is_best] == marked


def test_a_failed_run_does_not_withhold_the_others(write_study):
    text = f"{VARIANTS}[variants.boom]\ntraining.learning_rate = 1e30\ntraining.max_rollbacks = 0\n"
    command = write_study(text, training__max_steps=8)
    done = run(*command, "--format", "json")
    assert done.exit_code == 1, done.stderr
    record = json.loads(done.stdout)
    assert [row["name"] for row in record["variants"]] == ["base", "one"]
    assert record == json.loads(Path("out/study.json").read_text())
    assert Path("out/study.html").is_file()
    assert Path("out/curves.svg").is_file()
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 2 runs failed: out/boom/seed-1 (")
    # A variant is compared by the seeds that are finished
    shutil.rmtree("out/one/seed-2")
    study = read_study("s.toml", Path("out"))
    report, page = report_study(study, device="cpu", tell=str, warn=str)
    assert [len(row.runs) for row in report.variants] == [2, 1]
    assert page.sections[0].notes[-1].lines == ("one: 2",)
    # Without the first variant, the others are tested against the next
    shutil.rmtree("out/base")
    warned = []
    report, _ = report_study(study, device="cpu", tell=str, warn=warned.append)
    assert [row.name for row in report.variants] == ["one"]
    assert warned == ["base has no finished run; the others are tested against one"]


def test_a_study_without_a_finished_run_has_no_table(write_study):
    done = run(*write_study(training__learning_rate=1e30, training__max_rollbacks=0))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("error: 4 runs failed: ")
    assert not Path("out/study.json").exists()


@pytest.mark.parametrize("part", [("--variants", "one"), ("--seeds", "2")])
def test_a_part_leaves_the_files_of_the_whole(write_study, part):
    command = write_study()
    output_of(*command)
    names = ("study.json", "study.html", "curves.svg")
    whole = {name: Path("out", name).read_bytes() for name in names}
    done = run(*command, *part, "--format", "json")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert sum(len(row["runs"]) for row in record["variants"]) == 2
    assert {name: Path("out", name).read_bytes() for name in names} == whole
    assert done.stderr.count("\na part of the study: study.json, study.html and curves") == 1
    assert "shows more" not in done.stderr
    # All of it, named, is no part
    assert "shows more" in run(*command, "--variants", "one,base", "--seeds", "2,1").stderr


def test_a_study_may_grow_but_not_change(write_study):
    command = write_study(seeds="[1]")
    shown = output_of(*command)
    assert shown.startswith("1 seed, ")
    three = write_study(f"{VARIANTS}[variants.wide]\nmodel.d_ff = 64\n")
    ready = output_of(*three, "--dry-run")
    assert [line.split("\t")[1] for line in ready.splitlines()] == [
        *["1 of 2 runs finished"] * 2,
        "0 of 2 runs finished",
    ]
    changed = write_study(VARIANTS.replace("n_heads = 1", "n_heads = 4"), seeds="[1]")
    refused(
        *changed,
        says="s.toml: variants.one: out/one/seed-1 was trained with another model.n_heads; restore "
        "it, delete out/one to start it anew, or name another directory with -o",
    )
    refused(*write_study(seeds="[1]", model__d_ff=8), says="another model.d_ff")
    # What the refusal says to delete lets the changed variant begin
    shutil.rmtree("out/one")
    output_of(*write_study(VARIANTS.replace("n_heads = 1", "n_heads = 4"), seeds="[1]"))


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (
            "[variants.a]\nmodel.n_head = 1",
            (),
            "s.toml: variants.a: model.n_head: unknown key; did",
        ),
        ("[variants.a]\nmodel.n_heads = 3", (), "s.toml: variants.a: model"),
        ("[variants", (), "s.toml: is not valid TOML; expected"),
        ("[variants]", (), "s.toml: variants: must have at least one"),
        ("[variants]\na = 1", (), "s.toml: variants.a: must be a table"),
        ('[variants."a/b"]', (), 's.toml: variants: "a/b" cannot be the name of a folder'),
        ("[variants.study]", (), 's.toml: variants: "study" cannot be the name of a folder'),
        ("[variant.a]", (), 's.toml: variant: unknown key; did you mean "variants"?'),
        (VARIANTS, ("--variants", "bas"), '--variants: s.toml has no bas; did you mean "base"?'),
        (VARIANTS, ("--seeds", "1,1"), '--seeds: "1,1" is not a list of different seeds'),
        (VARIANTS, ("--set", "model.n_heads=4"), "--set: model.n_heads is what the variant one"),
        (VARIANTS, ("--set", "model.heads=4"), "--set model.heads: unknown key"),
        (VARIANTS, ("--set", "data.valid=[]"), "s.toml: variants.base: data.valid is missing"),
        (f'{VARIANTS}[test]\nsource = "x"\ntarget = "y"', (), "variants.base: test: no such file"),
        (
            f'{VARIANTS}[distillation]\nteachers = ["a"]'.replace("[dist", "[shared.dist"),
            (),
            "s.toml: variants.base: distillation is only for `tformer distill`",
        ),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_trained(write_study, text, options, says):
    command = write_study(text)
    refused(*command, *options, says=says)
    refused(*command, *options, "--dry-run", says=says)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"a = [", "my.toml: is not valid TOML; invalid value"), (b"\xff", "my.toml: is not UTF-8")],
)
def test_a_damaged_recipe_is_named(tmp_path, monkeypatch, data, says):
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_bytes(data)
    Path("s.toml").write_text('recipe = "my.toml"\nseeds = [1]\n[variants.a]\n')
    refused("study", "s.toml", "--dry-run", says=says)


def test_other_places_are_not_written_to(write_study):
    command = write_study()
    refused("study", "tabel-3", says='tabel-3: no such study; did you mean "table-3"?')
    Path("s.toml").write_text('recipe = "tiny.tom"\nseeds = [1]\n[variants.a]')
    refused(*command, says="s.toml: recipe: tiny.tom: no such recipe")
    command = write_study()
    Path("out").mkdir()
    Path("out/base.toml").write_text("mine")
    refused(*command, says="--output: out is already there; name a new directory")
    assert Path("out/base.toml").read_text() == "mine"


def test_time_of_the_first_seed_fixes_the_steps_of_the_others(write_study):
    keys = {"training__max_steps": 0, "training__max_minutes": 0.02}
    output_of(*write_study(seeds="[3, 1]", **keys))
    for name in ("base", "one"):
        first, other = (read_length(Path("out") / name / f"seed-{seed}") for seed in (3, 1))
        assert first.reason.startswith("max_minutes")
        assert other.steps == first.steps
    # A part of the seeds has the same steps, and is not taken for another study
    command = write_study(seeds="[3, 1, 2]", **keys)
    output_of(*command, "--seeds", "1,2", "--variants", "base")
    assert read_length(Path("out/base/seed-2")).steps == read_length(Path("out/base/seed-3")).steps


def test_classifiers_have_a_table_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared = "training.max_steps = 3\nvalidation.every = 3\n[variants.a]\n[variants.b]\n"
    Path("s.toml").write_text(
        f'recipe = "brackets"\nseeds = [1, 2]\n[shared]\n{shared}model.n_heads = 1\n'
    )
    record = record_of("study", "s.toml", "--device", "cpu", "--format", "json", "-q")
    measures = record["variants"][1]["measures"]
    assert [measure["name"] for measure in measures] == ["accuracy", "macro F1"]
    assert all(len(measure["values"]) == 2 for measure in measures)
    # The interval is that of the variant's own mean, not of its change: of the first, too
    for measure in (measure for row in record["variants"] for measure in row["measures"]):
        over_seeds = 12.706 * measure["deviation"] / math.sqrt(2)
        assert measure["interval"] >= max(0.001, 0.999 * over_seeds)
    assert Path("runs/s/a/seed-1/model.safetensors").is_file()


def test_other_kinds_have_their_validation_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_translator(tmp_path)(
        task={"kind": "language-model"},
        data__train=[{"built_in": "train", "pairs": 100, "text_field": "source"}],
        data__valid=[{"built_in": "valid", "pairs": 100, "text_field": "source"}],
        model__n_encoder_layers=0,
        **SHORT,
    )
    Path("lm.toml").write_text(recipe.to_toml())
    Path("s.toml").write_text(f'recipe = "lm.toml"\nseeds = [1, 2]\n{VARIANTS}')
    shown = output_of("study", "s.toml", "--device", "cpu", "-q")
    record = record_of("study", "s.toml", "--device", "cpu", "--format", "json", "-q")
    (loss,) = (m for m in record["variants"][1]["measures"] if m["name"] == "loss")
    assert (loss["interval"], len(loss["values"])) == (None, 2)
    assert f"{loss['mean']:.4f}" in shown


def test_a_killed_study_goes_on_to_the_same_weights(write_study):
    keys = {"training__max_steps": 60, "training__checkpoint_every": 5}
    command = write_study(**keys)
    whole = [str(part) for part in command]
    whole[whole.index("out")] = "whole"
    killed = subprocess.Popen(
        [sys.executable, "-m", "tformer_cli", *command], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not list(Path("out").glob("*/seed-1/checkpoints/step-*/state.json")):
        assert time.monotonic() < deadline
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    output_of(*command)
    output_of(*whole)
    for path in Path("whole").glob("*/seed-*/model.safetensors"):
        other = Path("out") / path.relative_to("whole")
        assert hash_file(other) == hash_file(path)
    assert not [name for name in workers() if str(Path.cwd()) in name]


def workers():
    """Command lines of the processes that train runs of a study, with their directories."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_text().replace("\0", " ")
            if Path(worker).stem in line and "study" in line:
                yield f"{line} {(folder / 'cwd').resolve()}"
        except OSError:
            continue


def test_the_papers_table_is_shipped():
    study = read_study("table-3", Path("never"))
    base = study.recipes["base"].model
    counts = {name: parameter_count(own.model, 8000) for name, own in study.recipes.items()}
    # Rows (A) keep the number of weights, as the paper's do; (B) and (C) do not
    for name, own in study.recipes.items():
        if name.startswith("A-"):
            assert counts[name] == counts["base"]
            assert own.model.n_heads * own.model.head_width == base.d_model
        if name.startswith(("B-", "C-")):
            assert counts[name] != counts["base"]
    letters = {name.partition("-")[0] for name in study.recipes}
    assert letters == {"base", "A", "B", "C", "D", "E"}
    assert {own.model.positions for own in study.recipes.values()} >= {"learned", "sinusoidal"}
    assert study.file.test.source == "test_2016_flickr.en.gz"
