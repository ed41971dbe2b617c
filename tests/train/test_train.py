import json
import math
import shutil
import signal
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional

from tests.recipes import tiny_translator
from tests.slowly import slowly
from tests.watched_training import Watcher, at, crash, crash_at, digest
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import ArtifactError, DataError, Interrupted, TformerError, UnreadableError
from tformer_cli.evaluate.evaluate import evaluate_model
from tformer_cli.files import atomic
from tformer_cli.model import operations
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.translator import Translator
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train import train as workflow
from tformer_cli.train.start import initial_model
from tformer_cli.train.train import choose_precision, train
from tformer_cli.trainer import gradients
from tformer_cli.trainer import loss as loss_module
from tformer_cli.trainer import trainer as trainer_module
from tformer_cli.trainer.best_model import average_weights
from tformer_cli.trainer.events import (
    PaceMeasured,
    RunEnded,
    RunStarted,
    StepReport,
    ValidationReport,
)
from tformer_cli.trainer.hardware import compile_layers
from tformer_cli.trainer.loss import smoothing_entropy
from tformer_cli.trainer.memory import GradientsInMemory
from tformer_cli.trainer.optimizers.schedule import learning_rate, scaled_to_batch
from tformer_cli.trainer.trainer import Trainer


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """Trainings here are small, and compared bit for bit."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def make(cache):
    """Makes recipes: a tiny model on the built-in corpus, with keys changed."""

    return tiny_translator(
        cache, 150,
        tokenizer={"bpe_dropout": 0.1},
        training={
            "max_steps": 12, "warmup_steps": 4, "report_every": 1, "checkpoint_every": 3,
            "average_checkpoints": 3,
        },
        validation={"every": 4, "patience": 50},
    )  # fmt: skip


def steps_kept(run):
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())


def reports(run):
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(e["kind"], e["step"], e.get("weights"), e.get("loss")) for e in entries]


@pytest.fixture(scope="module")
def whole(make, tmp_path_factory):
    """A run that nothing has interrupted; not to be changed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    train(make(), run)
    return run


def test_stops_and_crashes_leave_no_trace(make, tmp_path, whole):
    run = tmp_path / "run"
    for step, number in ((2, signal.SIGTERM), (7, signal.SIGINT), (12, signal.SIGTERM)):
        crash_at(make(), run, step - 1)
        with pytest.raises(Interrupted, match=f"stopped at step {step} ") as stopped:
            train(make(), run, observers=[at(step, lambda n=number: signal.raise_signal(n))])
        assert stopped.value.exit_status == 128 + number
        assert step in steps_kept(run)
    train(make(), run)
    assert digest(run) == digest(whole)
    assert reports(run) == reports(whole)
    assert steps_kept(run) == steps_kept(whole)


def test_without_compiled_kernels_a_run_is_as_exact(make, tmp_path, monkeypatch):
    monkeypatch.setenv("TFORMER_NATIVE", "0")
    watcher = Watcher()
    train(make(), tmp_path / "whole", observers=[watcher])
    notes = " ".join(watcher.of(RunStarted)[0].notes)
    assert "training without compiled kernels, which is slower: TFORMER_NATIVE=0" in notes
    crash_at(make(), tmp_path / "run", 7)
    train(make(), tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.parametrize("average", ["last", *slowly("ema")])
def test_compiled_layers_resume_exactly_and_are_compiled_for_training_alone(
    make, tmp_path, monkeypatch, average
):
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss_module._fusable_loss, backend=graphs)
    monkeypatch.setattr(loss_module, "_compile_loss", lambda: compiled)
    monkeypatch.setattr(operations, "dropout", functional.dropout)  # as on a GPU

    def compile_all(model, *, compiles):
        compile_layers(model, graphs)
        return []

    monkeypatch.setattr(workflow, "use_kernels", compile_all)
    recipe = make(training__average=average)
    train(recipe, tmp_path / "whole")
    assert graphs.frame_count <= 4
    crash_at(recipe, tmp_path / "run", 7)
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_begun_before_there_was_a_normalization_ends_as_it_would_have(make, tmp_path):
    before = make(tokenizer__normalization="none", training__max_steps=6)
    train(before, tmp_path / "whole")
    run = tmp_path / "run"
    crash_at(before, run, 5)
    recipe = run / "recipe.toml"
    recipe.write_text(recipe.read_text().replace('normalization = "none"\n', ""))
    train(make(training__max_steps=6), run)
    assert "NFC" not in (run / "tokenizer.json").read_text()
    assert digest(run) == digest(tmp_path / "whole")


def test_a_run_resumed_with_or_without_kernels_notes_it(make, tmp_path, kernels, monkeypatch):
    run = tmp_path / "run"
    crash_at(make(), run, 4)
    for step, switch, how in ((7, "0", "without"), (10, "1", "with")):
        monkeypatch.setenv("TFORMER_NATIVE", switch)
        watcher = at(step, crash)
        with pytest.raises(KeyError, match="power"):
            train(make(), run, observers=[watcher])
        assert f"resumes {how} compiled kernels" in " ".join(watcher.of(RunStarted)[0].notes)
    watcher = Watcher()
    train(make(), run, observers=[watcher])
    assert "compiled kernels" not in " ".join(watcher.of(RunStarted)[0].notes)


@pytest.mark.parametrize("average", ["best", "ema", "none"])
def test_models_of_every_kind_of_average_resume_exactly(make, tmp_path, average):
    recipe = make(training__average=average, validation__metric="chrf")
    train(recipe, tmp_path / "whole")
    crash_at(recipe, tmp_path / "run", 10)
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
    # scores that stay the same publish an early checkpoint: the last is compared, too
    for file in (tmp_path / "whole/checkpoints/step-000012").glob("[am]*.safetensors"):
        resumed = tmp_path / "run" / file.relative_to(tmp_path / "whole")
        assert resumed.read_bytes() == file.read_bytes(), file.name


def test_a_moving_average_is_validated_and_published(make, tmp_path):
    recipe, run, watcher = make(training__average="ema"), tmp_path / "run", Watcher()
    state = train(recipe, run, observers=[watcher]).state
    best = state.best_steps(recipe.validation)[0]
    checkpoint = run / "checkpoints" / f"step-{best:06d}"
    published, kept = load_tensors(run / "model.safetensors"), checkpoint / "average.safetensors"
    for name, tensor in load_tensors(kept).items():
        assert torch.equal(published[name], tensor), name
    trained = load_tensors(checkpoint / "model.safetensors")
    assert not all(torch.equal(published[name], tensor) for name, tensor in trained.items())
    (report,) = [event for event in watcher.of(ValidationReport) if event.step == best]
    pairs = workflow.validation_pairs(recipe)
    evaluation = evaluate_model(
        run, [pair.source for pair in pairs], [[pair.target for pair in pairs]]
    )
    assert report.scores["loss"] == pytest.approx(evaluation.loss, rel=1e-6)


def test_r_drop_and_growing_batches_resume_exactly(make, tmp_path):
    recipe = make(
        training__r_drop=5.0,
        training__accumulate=2,
        training__batch_growth=[[0.3, 2], [0.7, 3]],
        training__max_steps=10,
        training__checkpoint_every=2,
    )
    watcher = Watcher()
    train(recipe, tmp_path / "whole", observers=[watcher])
    tokens = [0, *(report.tokens for report in watcher.of(StepReport))]
    sizes = [after - before for before, after in pairwise(tokens)]
    means = [sum(part) / len(part) for part in (sizes[:3], sizes[3:7], sizes[7:])]
    assert means[1] == pytest.approx(2 * means[0], rel=0.2)
    assert means[2] == pytest.approx(3 * means[0], rel=0.2)
    for step in (3, 6):
        crash_at(recipe, tmp_path / "run", step)
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
    assert reports(tmp_path / "run") == reports(tmp_path / "whole")
    ordinary = Watcher()
    train(
        make(training__accumulate=2, training__max_steps=1),
        tmp_path / "ordinary",
        observers=[ordinary],
    )
    first, plain = watcher.of(StepReport)[0], ordinary.of(StepReport)[0]
    assert (first.tokens, first.padding) == (plain.tokens, plain.padding)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "activation": "swish", "d_head": 6, "tied_embeddings": "inputs"},
        {"positions": "relative", "similarity": "dot", "norm_kind": "rms", "gated": True},
        *slowly(
            {"positions": "alibi", "similarity": "cosine", "n_key_heads": 1},
            {"positions": "segments"},
            {"positions": "none", "similarity": "additive", "activation": "gelu-tanh"},
            {"similarity": "distance", "projections": False},
        ),
    ],
    ids=str,
)
def test_variants_learn_and_resume_exactly(make, tmp_path, changes):
    keys = {f"model__{name}": value for name, value in changes.items()}
    recipe = make(training__learning_rate=0.01, **keys)
    check_learns_and_resumes(recipe, tmp_path)


def check_learns_and_resumes(recipe, tmp_path):
    watcher = Watcher()
    train(recipe, tmp_path / "whole", observers=[watcher])
    losses = [report.loss for report in watcher.of(StepReport)]
    assert losses[-1] < losses[0] - 0.3
    crash_at(recipe, tmp_path / "run", 7)
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


@torch.no_grad()
def test_layers_whose_outputs_begin_at_zero_are_the_identity(make):
    drawn = initial_model(make(model__norm="pre"), 50).state_dict()
    model = initial_model(make(model__norm="pre", training__zero_outputs=True), 50).eval()
    weights = model.state_dict()
    changed = {name for name, weight in weights.items() if not torch.equal(weight, drawn[name])}
    outputs = {n for n in weights if n.endswith(("out_projection.weight", "outer.weight"))}
    assert changed == outputs
    assert len(outputs) == sum(2 for _ in model.encoder.layers) + sum(
        3 for _ in model.decoder.layers
    )
    assert not any(weights[name].any() for name in outputs)
    hidden = torch.randn(2, 5, model.config.d_model)
    assert torch.equal(model.encoder(hidden), model.encoder.final_norm(hidden))


@pytest.mark.parametrize("optimizer", ["normuon", *slowly("adamw")])
def test_cautious_decay_of_weights_that_begin_at_zero_resumes_exactly(make, tmp_path, optimizer):
    recipe = make(
        training__optimizer=optimizer,
        training__learning_rate=0.01,
        training__weight_decay=0.1,
        training__cautious_decay=True,
        training__zero_outputs=True,
    )
    check_learns_and_resumes(recipe, tmp_path)


def test_before_there_is_a_run_nothing_is_removed(make, tmp_path):
    (tmp_path / "film.partial").write_text("mine")
    with pytest.raises(DataError):
        train(make(data__train=[{"jsonl": "missing.jsonl"}]), tmp_path)
    assert (tmp_path / "film.partial").read_text() == "mine"


def test_files_left_half_written_by_a_kill_are_ignored(make, tmp_path, whole):
    run = tmp_path / "run"
    crash_at(make(), run, 11)
    assert steps_kept(run)[-1] == 9
    checkpoints = run / "checkpoints"
    (checkpoints / "step-000010").mkdir()  # no state.json
    (checkpoints / "step-000011.partial").mkdir()
    (checkpoints / "step-000011.partial" / "model.safetensors").write_bytes(b"half")
    (run / "model.safetensors.77.partial").write_bytes(b"half")
    newest = checkpoints / "step-000009" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    watcher = Watcher()
    train(make(), run, observers=[watcher])
    (started,) = watcher.of(RunStarted)
    assert started.step == 8
    assert "resuming from step 8" in started.notes[-1]
    assert digest(run) == digest(whole)
    assert reports(run) == reports(whole)
    assert not list(run.rglob("*.partial"))


@pytest.mark.parametrize("file", ["state.json", "optimizer.safetensors"])
def test_any_damaged_file_of_a_checkpoint_is_noticed(make, tmp_path, file):
    run = tmp_path / "run"
    crash_at(make(), run, 5)
    for step in steps_kept(run):
        path = run / "checkpoints" / f"step-{step:06d}" / file
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(
        ArtifactError, match=r"no checkpoint is intact \(.*\); start over with --fresh"
    ):
        train(make(), run)


@pytest.mark.parametrize("file", ["state.json", "optimizer.safetensors"])
def test_a_checkpoint_that_the_system_cannot_read_now_is_left_alone(make, tmp_path, whole, file):
    run = tmp_path / "run"
    crash_at(make(), run, 10)
    kept = steps_kept(run)
    path = run / "checkpoints" / f"step-{kept[-1]:06d}" / file
    content = path.read_bytes()
    path.unlink()
    path.symlink_to(path)  # ELOOP: the system's own error, also for root
    with pytest.raises(UnreadableError, match=r"cannot be read \(.*; try again, or remove .*step-"):
        train(make(), run)
    assert steps_kept(run) == kept
    path.unlink()
    path.write_bytes(content)
    train(make(), run)
    assert digest(run) == digest(whole)


@pytest.mark.parametrize("n_writes", [4, 14, *slowly(1, 9)])
def test_a_full_disk_fails_the_run_and_leaves_it_resumable(
    make, tmp_path, monkeypatch, whole, n_writes
):
    run, done = tmp_path / "run", []

    def flush(path):
        done.append(path)
        if path.suffix == ".partial" and "checkpoints" in path.parts and len(done) > 3 * n_writes:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "flush_file", flush)
        with pytest.raises(TformerError, match="no space left on device") as failed:
            train(make(), run)
    assert failed.value.exit_status == 1
    train(make(), run)
    assert digest(run) == digest(whole)


def test_a_finished_run_is_left_alone(make, whole):
    before = digest(whole), (whole / "metrics.jsonl").read_bytes()
    result = train(make(), whole)
    assert result.was_finished
    assert result.state.reason == "max_steps = 12 is reached"
    assert (digest(whole), (whole / "metrics.jsonl").read_bytes()) == before


def test_kept_checkpoints_are_the_last_and_the_best(make, tmp_path):
    recipe = make(
        training__average="none",
        training__keep_last=2,
        training__keep_best=1,
        training__learning_rate=1e-12,
        validation__metric="chrf",
    )
    result = train(recipe, tmp_path / "run")
    best = result.state.best_steps(recipe.validation)[0]
    assert steps_kept(tmp_path / "run") == sorted({9, 12, best})
    assert best == 4, "scores that stay the same keep the first best"
    assert load_model_directory(tmp_path / "run").info.step == best


def test_the_final_model_is_the_average_of_the_last_checkpoints(make, tmp_path):
    # without validation: with scores the best checkpoint may take its place
    train(make(data__valid=[], validation__patience=0), tmp_path / "run")
    files = sorted((tmp_path / "run" / "checkpoints").glob("*/model.safetensors"))[-3:]
    assert [file.parent.name for file in files] == ["step-000006", "step-000009", "step-000012"]
    mean = average_weights(files)
    final = load_tensors(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(final[name], mean[name]) for name in mean)


def test_a_limit_of_time_leaves_time_to_validate(make, tmp_path):
    watcher = Watcher()
    recipe = make(
        training__max_steps=0, training__max_minutes=0.05, training__average="none",
        validation__every=10**6,
    )  # fmt: skip
    state = train(recipe, tmp_path / "run", observers=[watcher]).state
    first, last = watcher.of(ValidationReport)
    assert 0 < first.step < last.step == state.step
    assert state.seconds_to_end >= last.seconds > 0.0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_epochs": 1}, "max_epochs = 1 is reached"),
        ({"max_tokens": 2000}, "max_tokens = 2000 is reached"),
        ({"max_minutes": 0.0005}, "max_minutes = 0.0005 is reached"),
    ],
)
@pytest.mark.parametrize("schedule", ["linear", *slowly("noam")])
def test_every_limit_ends_the_run(make, tmp_path, limits, reason, schedule):
    changes = {f"training__{key}": value for key, value in limits.items()}
    recipe = make(training__max_steps=0, training__schedule=schedule, **changes)
    watcher = Watcher()
    state = train(recipe, tmp_path / "run", observers=[watcher]).state
    assert state.reason == reason
    assert state.is_finished
    if "max_epochs" in limits:
        assert state.position.epoch == 1
    rates = [event.learning_rate for event in watcher.of(StepReport)]
    assert all(0.0 <= rate < 0.2 for rate in rates)


def test_patience_ends_a_run_that_no_longer_improves(make, tmp_path):
    recipe = make(
        training__max_steps=0,
        training__learning_rate=1e-12,
        training__schedule="constant",
        validation__patience=2,
        validation__metric="chrf",
    )
    state = train(recipe, tmp_path / "run").state
    assert state.step == 12
    assert state.reason == "early stopping, no better chrf for validation.patience = 2"


def test_without_validation_the_run_directory_is_a_model_all_along(make, tmp_path):
    recipe = make(data__valid=[], validation__patience=0)
    crash_at(recipe, tmp_path / "run", 8)
    assert load_model_directory(tmp_path / "run").info.step == 6
    state = train(recipe, tmp_path / "run").state
    assert state.validations == []


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_nan_loss_ends_the_run_before_anything_is_saved(make, tmp_path, monkeypatch, on_cpu):
    run, n_calls = tmp_path / "run", 0
    true_loss = gradients.projected_loss

    def loss(*arguments):
        nonlocal n_calls
        n_calls += 1
        factor = math.nan if n_calls >= 8 else 1.0
        return true_loss(arguments[0] * factor, *arguments[1:])

    def make_trainer(**parts):
        trainer = Trainer(**parts)
        trainer.checks_each_step = on_cpu  # on a GPU only reports and checkpoints look
        return trainer

    with monkeypatch.context() as patch:
        patch.setattr(workflow, "Trainer", make_trainer)
        patch.setattr(gradients, "projected_loss", loss)
        recipe = make(training__report_every=100)
        with pytest.raises(TformerError, match="is NaN or infinity") as failed:
            train(recipe, run)
    assert failed.value.exit_status == 1
    assert steps_kept(run)[-1] == 6
    for path in run.rglob("model.safetensors"):
        assert all(torch.isfinite(tensor).all() for tensor in load_tensors(path).values())
    train(recipe, run)


def test_validation_scores_are_those_of_evaluate(make, tmp_path):
    recipe = make(
        data__train=[{"built_in": "train", "pairs": 300}],
        data__valid=[{"built_in": "valid", "pairs": 300}],
        validation__every=5, validation__max_sentences=20, validation__metric="bleu",
        training__average="none", training__accumulate=2, training__warmup_steps=8,
        training__max_steps=40, training__learning_rate=0.02, decoding__max_length=60,
        decoding__beam_size=1, tokenizer__bpe_dropout=0.0,
    )  # fmt: skip
    watcher = Watcher()
    train(recipe, tmp_path / "run", observers=[watcher])
    best = [event for event in watcher.of(ValidationReport) if event.is_best][-1]
    pairs = workflow.validation_pairs(recipe)
    evaluation = evaluate_model(
        tmp_path / "run", [pair.source for pair in pairs], [[pair.target for pair in pairs]]
    )
    scores = {score.name: score for score in evaluation.scores}
    assert best.scores["bleu"] == scores["BLEU"].value
    assert best.scores["chrf"] == scores["chrF2"].value > 0.0
    assert best.signatures["bleu"] == scores["BLEU"].signature
    assert best.scores["loss"] == pytest.approx(evaluation.loss, rel=1e-6)


PAIRS = [
    (f"the {a} {b} {c}", f"{c}er {b}a {a}o")
    for a in ("red", "blue", "old")
    for b in ("cat", "dog", "cow", "hen", "pig")
    for c in ("runs", "eats")
]


def test_a_tiny_model_learns_thirty_pairs_by_heart(make, tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    recipe = make(
        data__train=[{"tsv": str(tmp_path / "pairs.tsv")}],
        data__valid=[], validation__patience=0, tokenizer__algorithm="word",
        tokenizer__bpe_dropout=0.0, model__d_model=32, model__dropout=0.0, training__max_steps=150,
        training__accumulate=1, training__warmup_steps=20, training__learning_rate=0.01,
        training__schedule="linear", training__checkpoint_every=1000, decoding__beam_size=1,
    )  # fmt: skip
    watcher = Watcher()
    train(recipe, tmp_path / "run", observers=[watcher])
    losses = [event.loss for event in watcher.of(StepReport)]
    lowest = smoothing_entropy(0.1, read_tokenizer(tmp_path / "run").vocab_size)
    assert losses[0] > lowest + 1.0
    assert lowest < losses[-1] < lowest + 0.05
    directory = load_model_directory(tmp_path / "run")
    translator = Translator(
        directory.model,
        directory.tokenizer,
        DecodingConfig(beam_size=1),
        engines=[TorchEngine(torch.device("cpu"))],
    )
    translations = translator.translate([source for source, _ in PAIRS])
    assert [t.hypotheses[0].text for t in translations] == [target for _, target in PAIRS]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.5])
def test_the_reported_loss_is_torchs_cross_entropy(make, tmp_path, monkeypatch, label_smoothing):
    true_loss, passes = gradients.projected_loss, []

    def noting(hidden, matrix, targets, *settings):
        passes.append((hidden.detach() @ matrix.detach().T, targets))
        return true_loss(hidden, matrix, targets, *settings)

    monkeypatch.setattr(gradients, "projected_loss", noting)
    keys = {"training__max_steps": 1, "training__label_smoothing": label_smoothing}
    train(make(**keys, data__valid=[], validation__patience=0), tmp_path / "run")
    (report,) = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    logits, targets = (torch.cat(parts) for parts in zip(*passes, strict=True))
    loss = functional.cross_entropy(
        logits, targets, ignore_index=-1, label_smoothing=label_smoothing
    )
    assert report["loss"] == pytest.approx(float(loss), rel=1e-5)


def test_bfloat16_learns_on_a_cpu(make, tmp_path):
    recipe = make(
        training__precision="bfloat16", training__max_steps=30, training__learning_rate=0.01
    )
    watcher = Watcher()
    train(recipe, tmp_path / "run", observers=[watcher])
    assert watcher.of(RunStarted)[0].precision == "bfloat16"
    losses = [event.loss for event in watcher.of(StepReport)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert all(
        t.dtype == torch.float32 for t in load_tensors(tmp_path / "run/model.safetensors").values()
    )


def test_auto_takes_bfloat16_where_the_hardware_has_it(make, monkeypatch):
    recipe = make(training__precision="auto")
    for is_fast, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(workflow, "has_fast_bfloat16", lambda kind, fast=is_fast: fast)
        assert choose_precision(recipe, "cpu") == expected
    assert choose_precision(make(training__precision="float32"), "cuda") == "float32"


@pytest.mark.parametrize("tf32", [True, False])
def test_steps_have_the_products_of_the_recipe_and_the_caller_has_its_own(
    make, tmp_path, monkeypatch, tf32
):
    matmul = torch.backends.cuda.matmul
    before, during = matmul.fp32_precision, set()
    add = GradientsInMemory.add

    def note_setting(*arguments, **options):
        during.add(matmul.fp32_precision)
        return add(*arguments, **options)

    monkeypatch.setattr(GradientsInMemory, "add", note_setting)
    recipe = make(training__precision="tf32" if tf32 else "float32")
    watcher = Watcher()
    train(recipe, tmp_path / "run", device="cpu", observers=[watcher])
    assert during == {"tf32" if tf32 else before}
    assert matmul.fp32_precision == before
    has_note = any("without a GPU" in note for note in watcher.of(RunStarted)[0].notes)
    assert has_note == tf32


@pytest.mark.parametrize(
    ("precision", "device", "note"),
    [
        ("tf32", "cuda", "float32 products in TF32: factors are rounded to 10 bits"),
        ("float32", "cuda", "exact float32 products; "),
        ("float32", "cpu", None),
        ("bfloat16", "cuda", None),
    ],
)
def test_a_run_says_what_its_float32_products_are(make, precision, device, note):
    recipe = make(training__precision=precision)
    notes = workflow.notes_of_products(recipe, choose_precision(recipe, device), device)
    assert [text[: len(note)] for text in notes] == ([] if note is None else [note])


@pytest.mark.parametrize(("on_cpu", "factor"), [(False, 5.0), (True, 1.0)])
def test_a_batch_that_was_found_on_a_gpu_brings_its_learning_rate(
    make, tmp_path, monkeypatch, on_cpu, factor
):
    """The state holds the factor, so that a resumption has the same rates anywhere."""
    fit = Trainer.fit_batches

    def fit_as_on_a_gpu(self, lengths):
        self.checks_each_step = on_cpu
        return fit(self, lengths)

    monkeypatch.setattr(Trainer, "fit_batches", fit_as_on_a_gpu)
    monkeypatch.setattr(trainer_module, "settle_tokens_per_batch", lambda *_: 5 * 4096)
    recipe = make(training__tokens_per_batch=0, training__warmup_steps=100)
    run = tmp_path / "run"
    watcher = Watcher()
    train(recipe, run, device="cpu", observers=[watcher])
    (state,) = {json.loads(file.read_text())["batch_factor"] for file in run.glob("**/state.json")}
    assert state == factor
    rates = [(event.step, event.learning_rate) for event in watcher.of(StepReport)]
    scaled = scaled_to_batch(recipe.training, factor)
    for step, rate in rates:
        assert rate == pytest.approx(learning_rate(scaled, step, 0.0, recipe.model.d_model))


def test_time_spent_validating_does_not_lower_the_speed_reported(make, tmp_path, monkeypatch):
    from tformer_cli.trainer.validation import Validator

    clock = [0.0]
    validate = Validator.validate

    def slow(self, model, sample, before_batch=None):
        clock[0] += 1000.0
        return validate(self, model, sample)

    def tick():
        clock[0] += 0.001
        return clock[0]

    monkeypatch.setattr("tformer_cli.trainer.trainer.time.monotonic", tick)
    monkeypatch.setattr(Validator, "validate", slow)
    watcher = Watcher()
    train(
        make(training__report_every=3, validation__every=3), tmp_path / "run", observers=[watcher]
    )
    reported = watcher.of(StepReport)
    assert len(reported) == 4
    assert all(event.tokens_per_second > 1000 for event in reported)
    assert watcher.of(RunEnded)[0].seconds > 4000


def test_the_first_steps_of_a_run_and_of_its_resumption_foresee_the_rest(
    make, tmp_path, monkeypatch
):
    monkeypatch.setattr("tformer_cli.trainer.speed._SECONDS", 0.0)
    run, recipe = tmp_path / "run", make()
    first, second = at(7, crash), Watcher()
    with pytest.raises(KeyError, match="power"):
        train(recipe, run, observers=[first])
    train(recipe, run, observers=[second])
    (pace,), (rest,) = first.of(PaceMeasured), second.of(PaceMeasured)
    assert (pace.step, pace.n_steps) == (0, 12)
    assert (rest.step, rest.n_steps) == (6, 6)
    assert pace.seconds > 0.0


def test_an_unfinished_run_without_checkpoints_starts_over(make, tmp_path, whole):
    run = tmp_path / "run"
    crash_at(make(), run, 2)
    assert not (run / "checkpoints").exists()
    train(make(), run)
    assert digest(run) == digest(whole)
    assert reports(run) == reports(whole)


def test_a_copied_run_resumes_elsewhere(make, tmp_path, whole):
    crash_at(make(), tmp_path / "run", 10)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    train(make(), tmp_path / "copy")
    assert digest(tmp_path / "copy") == digest(whole)


def test_another_cache_directory_does_not_change_the_recipe(make, tmp_path, whole):
    recipe = make()
    moved = replace(recipe, data=replace(recipe.data, cache_directory=str(tmp_path / "moved")))
    assert train(moved, whole).was_finished
