import hashlib
import json
import shutil

import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from tests.models import LINES
from tests.plugins.corpora_tools.distill.conftest import TARGETS, write_lines
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.errors import (
    ArtifactError,
    DataError,
    RecipeError,
    TformerError,
    UsageError,
)
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.plugins.corpora_tools.benchmark import _try_to_measure
from tformer_cli.plugins.corpora_tools.distill import report as report_module
from tformer_cli.plugins.corpora_tools.distill.distill import distill, plan_distillation
from tformer_cli.plugins.corpora_tools.distill.report import read_report
from tformer_cli.plugins.corpora_tools.distill.setup import Setup, Silent
from tformer_cli.plugins.corpora_tools.distill.stages import State
from tformer_cli.recipe import load_recipe
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train.start import completion
from tformer_cli.train.train import train

IN_PROCESSES = "test_from_teacher_to_report_and_again_nothing"
DONE = State.new, State.begun, State.changed


class Noted(Silent):
    """Keeps the states of the stages."""

    def __init__(self):
        self.states = {}

    def stage(self, stage, state):
        self.states[stage.name] = state


@pytest.fixture(autouse=True)
def one_round(request, monkeypatch):
    """Measures once, and but for one test in this process: others take a second to begin."""
    monkeypatch.setattr(report_module, "ROUNDS", 1)
    if request.node.name != IN_PROCESSES:
        monkeypatch.setattr(report_module, "measure_in_turns", measured_here)


def measured_here(systems, lines, *, rounds, progress):
    runs = [[_try_to_measure(system.model, list(lines), system.options)] for system in systems]
    for (outcome,) in runs:
        if isinstance(outcome, TformerError):
            raise outcome
    return runs


@pytest.fixture
def run(make):
    """Distills with changes to the recipe; returns the report and the stages that did something."""

    def ran(*overrides, fresh=False):
        noted = Noted()
        report = distill(make(*overrides, display=noted), fresh=fresh)
        return report, {name for name, state in noted.states.items() if state in DONE}

    return ran


def hashes(directory):
    """Hashes of all files but those that say which process worked, and how long."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "job.json")
    }


def test_from_teacher_to_report_and_again_nothing(make, run, texts, model):
    (before,) = [hashes(model)]
    report, done = run("distillation.plain_student=true")
    assert done == {
        *("translate train-0", "select", "student", "plain-student", "shortlist", "int8", "report")
    }
    out = texts / "out"
    names = [system.name for system in report.systems]
    assert names == ["teacher", "student", "int8 student", "plain student"]
    teacher, student, int8, plain = report.systems
    assert teacher.speed_ratio == teacher.processor_ratio == 1.0
    assert int8.weight_bytes == (out / "int8/model.safetensors").stat().st_size
    assert int8.weight_bytes < student.weight_bytes
    assert (student.has_shortlist, int8.has_shortlist, plain.has_shortlist) == (True, True, False)
    assert (teacher.beam_size, student.beam_size) == (3, 1)
    (comparison,) = report.test_sets
    for system, directory in (("teacher", model), ("student", out / "student")):
        lines = [line.text for line in translate_lines(directory, LINES * 4, threads=1)]
        place = names.index(system)
        scores = [metric.scores[place].value for metric in comparison.metrics]
        references = [TARGETS * 4]
        assert scores == [
            corpus_bleu(lines, references).score, corpus_chrf(lines, references).score
        ]  # fmt: skip
    assert read_report(out) == report
    written = hashes(out)
    again, done = run("distillation.plain_student=true")
    assert (again, done) == (report, set())
    assert hashes(out) == written
    assert hashes(model) == before


def test_the_student_is_that_of_train_on_the_same_corpora(run, texts):
    run()
    recipe = load_recipe(str(texts / "out/student/recipe.toml"))
    train(recipe, texts / "alone")
    weights = [
        (texts / name / "model.safetensors").read_bytes() for name in ("out/student", "alone")
    ]
    assert weights[0] == weights[1]
    assert [corpus.jsonl for corpus in recipe.data.train] == [
        "", str(texts / "out/corpora/train-0.jsonl")
    ]  # fmt: skip


def test_only_what_a_change_concerns_is_done_again(run, texts):
    run()
    out = texts / "out"
    old = (out / "student/model.safetensors").read_bytes()
    assert run("data.origin='elsewhere'")[1] == set()
    assert run('distillation.significance="paired-approximate-randomization"')[1] == {"report"}
    _, done = run("training.max_steps=5")
    assert done == {"student", "shortlist", "int8", "report"}
    assert (out / "earlier/student-1/student/model.safetensors").read_bytes() == old
    assert (out / "earlier/student-1/student/shortlist.safetensors").exists()
    assert run()[1] == {"shortlist", "int8"}  # the student and the report are taken back
    assert (out / "student/model.safetensors").read_bytes() == old
    _, done = run("distillation.shortlist=false")
    assert done == {"int8", "report"}
    assert not (out / "student/shortlist.safetensors").exists()
    assert not (out / "int8/shortlist.safetensors").exists()


def test_other_decoding_settings_train_no_student_again(make, run, texts):
    run("distillation.plain_student=true")
    out = texts / "out"
    weights = (out / "student/model.safetensors").read_bytes()
    changes = "distillation.plain_student=true", "decoding.beam_size=3", "decoding.length_penalty=1"
    plan = {stage.name: state for stage, state in plan_distillation(make(*changes))[0]}
    assert plan["student"] is plan["plain-student"] is plan["shortlist"] is State.unchanged
    assert plan["int8"] is State.changed
    assert run(*changes)[1] == {"int8", "report"}
    for name in ("student", "plain-student", "int8"):
        decoding = read_config(out / name).decoding
        assert (decoding.beam_size, decoding.length_penalty) == (3, 1.0)
    assert (out / "student/model.safetensors").read_bytes() == weights
    assert run(*changes)[1] == set()
    # the texts of a validation with a beam, which may choose the weights, are ranked by the penalty
    beam = *changes, "validation.beam_size=2"
    run(*beam)
    assert "student" in run(*beam, "decoding.length_penalty=0.5")[1]


def test_without_integers_or_teacher_fewer_systems_are_compared(run, texts):
    write_lines(texts / "made.de", TARGETS * 4)
    options = ("distillation.teachers=[]", 'distillation.translations=["made.de"]')
    report, _ = run(*options, "distillation.shortlist=false")
    assert [system.name for system in report.systems] == ["student", "int8 student"]
    report, _ = run(*options, "distillation.shortlist=false", "distillation.int8=false")
    assert [system.name for system in report.systems] == ["student"]


def test_a_teacher_of_elsewhere_is_compared_by_its_texts(run, texts):
    write_lines(texts / "made.de", TARGETS * 4)
    options = (
        "distillation.teachers=[]", 'distillation.translations=["made.de"]',
        "distillation.int8=false",
    )  # fmt: skip
    report, _ = run(*options, 'distillation.test_translations=["made.de"]')
    assert [system.name for system in report.systems] == ["student"]
    (comparison,) = report.test_sets
    assert comparison.systems == ("teacher", "student")
    assert comparison.metrics[0].scores[0].value == pytest.approx(100.0)
    write_lines(texts / "few.de", TARGETS)
    with pytest.raises(DataError, match=r"few.de, train: different numbers of lines"):
        run(*options, 'distillation.test_translations=["few.de"]')


def test_a_multilingual_teacher_is_told_its_languages(run, make, texts, foreign):
    teacher = f'distillation.teachers=["{foreign}"]'
    with pytest.raises(RecipeError, match=r"^distillation.teacher_source_language: "):
        distill(make(teacher))
    codes = [f'distillation.teacher_{side}_language="{code}"'
             for side, code in (("source", "eng"), ("target", "fra"))]  # fmt: skip
    with pytest.raises(RecipeError, match=r"^distillation.teacher_target_language: "):
        distill(make(teacher, codes[0]))
    assert not (texts / "out").exists()
    run(teacher, *codes, "distillation.int8=false", "distillation.shortlist=false")
    records = (texts / "out/translations/train-0.jsonl").read_text().splitlines()
    expected = translate_lines(
        foreign, LINES[:1], source_language="eng", target_language="fra", beam_size=3, n_best=3
    )
    assert json.loads(records[0])["translation"] == next(iter(expected)).text


@pytest.mark.parametrize("start", ["model", "foreign"])
def test_a_student_from_a_model_learns_the_tag_as_a_new_token(texts, model, start, request, make):
    origin = request.getfixturevalue(start)
    write_lines(texts / "mono.de", TARGETS)
    text = (texts / "d.toml").read_text()
    shape = text[text.index("[tokenizer]") : text.index("[training]")]
    (texts / "d.toml").write_text(text.replace(shape, f'[model]\nfrom = "{origin}"\n'))
    out = texts / "out"
    overrides = [
        'distillation.back_translation=["mono.de"]', f'distillation.reverse_model="{model}"',
        "distillation.int8=false", "distillation.shortlist=false", "training.max_steps=2",
        "data.max_length=15",
    ]  # fmt: skip
    if start == "foreign":
        overrides += ['data.source_language="eng"', 'data.target_language="fra"']
    complete = completion(out / "student", lambda text: None)
    recipe = load_recipe(str(texts / "d.toml"), overrides, complete)
    setup = Setup(recipe=recipe, directory=out, threads=1)
    distill(setup)
    tokenizer = read_tokenizer(out / "student/tokenizer.json")
    assert tokenizer.new_tokens == ("<BT>",)
    before = read_tokenizer(origin / "tokenizer.json").source.vocab_size
    assert tokenizer.source.vocab_size == before + 1
    assert tokenizer.source.encode("<BT> a").count(before) == 1


def test_fresh_starts_over(run, texts):
    run("distillation.int8=false")
    note = texts / "out/notes.txt"
    note.write_text("mine")
    _, done = run("distillation.int8=false", fresh=True)
    assert {"translate train-0", "select", "student"} <= done
    assert note.read_text() == "mine"


def test_a_plan_changes_nothing(make, texts):
    stages, _ = plan_distillation(make())
    assert [state for _, state in stages] == [State.new, *[State.later] * 5]
    assert not (texts / "out").exists()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_interrupted_training_is_resumed_to_the_same_student(run, texts, monkeypatch, beam_size):
    run("distillation.int8=false", "distillation.shortlist=false")
    whole = (texts / "out/student/model.safetensors").read_bytes()
    shutil.rmtree(texts / "out")
    from tformer_cli.trainer.resuming.checkpoints import Checkpoints

    original, calls = Checkpoints.save, []

    class Stopped(BaseException):
        pass

    def save(self, *args, **more):
        original(self, *args, **more)
        calls.append(1)
        if len(calls) == 1:
            raise Stopped

    monkeypatch.setattr(Checkpoints, "save", save)
    with pytest.raises(Stopped):
        run("distillation.int8=false", "distillation.shortlist=false")
    beam = f"decoding.beam_size={beam_size}"  # may change meanwhile: it decides nothing
    _, done = run("distillation.int8=false", "distillation.shortlist=false", beam)
    assert done == {"student", "report"}
    assert (texts / "out/student/model.safetensors").read_bytes() == whole
    assert read_config(texts / "out/student").decoding.beam_size == beam_size


def test_no_input_and_nothing_of_others_is_written_over(make, texts, model):
    out = texts / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds other files \(thesis.txt\)"):
        distill(make())
    (out / "thesis.txt").unlink()
    shutil.copytree(model, out / "student")
    with pytest.raises(UsageError, match="--output: "):
        distill(make(f'distillation.teachers=["{out / "student"}"]'))
    shutil.rmtree(out)
    shutil.copytree(model, out)
    with pytest.raises(UsageError, match="--output: "):
        distill(make(f'distillation.teachers=["{out}"]'))


def test_a_tokenizer_in_the_place_of_a_stage_is_not_replaced(make, run, texts):
    run("distillation.shortlist=false")
    shutil.move(texts / "out/int8", texts / "mine")
    shutil.copytree(texts / "mine", texts / "out/int8")
    with pytest.raises(UsageError, match=r"holds the input \(tokenizer.path\)"):
        distill(make(f'tokenizer.path="{texts / "out/int8/tokenizer.json"}"'))


def test_a_damaged_report_is_an_error_and_one_of_an_earlier_version_is_none(run, texts):
    run("distillation.int8=false")
    path = texts / "out/report/report.json"
    record = json.loads(path.read_text())
    for metric in record["test_sets"][0]["metrics"]:
        for score in metric["scores"]:
            del score["equals_baseline"]
    path.write_text(json.dumps(record))
    assert read_report(texts / "out").test_sets[0].metrics[0].scores[1].equals_baseline is None
    for text in ("{", "{}", json.dumps({**record, "systems": 3})):
        path.write_text(text)
        with pytest.raises(ArtifactError, match="is damaged"):
            read_report(texts / "out")
