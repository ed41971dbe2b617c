"""Training with a memory: rows that go on, validation, resumption, rollback, texts."""

import math
import signal

import pytest
import torch
from torch.nn import functional

from tests.train.test_language_model import TEXT, examples, make  # noqa: F401 - a fixture
from tests.watched_training import Watcher, at, crash_at, digest
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import Interrupted, RecipeError, TformerError, UsageError
from tformer_cli.evaluate.evaluate import evaluate_texts
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.text.loading.loader import SegmentLoader
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train
from tformer_cli.trainer import gradients, memory
from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.resuming.saving import RunSaver
from tformer_cli.trainer.trainer import Trainer


@pytest.fixture
def segments(make):  # noqa: F811 - the fixture
    """Makes recipes with a memory; other keys as `make` takes them."""

    def segments(**changes):
        settings = {
            "data__text": "stream",
            "data__max_length": 8,
            "model__positions": "segments",
            "model__memory": 12,
            "model__max_positions": 9,
            "model__norm": "pre",
            "training__tokens_per_batch": 24,
            **changes,
        }
        return make(**settings)

    return segments


@pytest.mark.parametrize("budget", [8, 24, 100, 10_000])
def test_rows_go_on_from_batch_to_batch(segments, budget):
    _, blocks, corpus = examples(segments())
    text = [token for block in blocks for token in block]
    loader = SegmentLoader(corpus, budget)
    n_rows = min(len(blocks), max(1, budget // 8))
    batches = list(loader._epoch(0, 0))
    assert [number for number, _ in batches] == list(range(loader.n_batches(0)))
    read = {row: [] for row in range(n_rows)}
    predicted = {row: [] for row in range(n_rows)}
    for number, batch in batches:
        assert (batch.target_input[:, 0] == BOS_ID).all() == (number == 0)
        for row in range(len(batch.target_input)):
            is_token = batch.target_output[row] != PAD_ID
            read[row] += batch.target_input[row][is_token].tolist()
            predicted[row] += batch.target_output[row][is_token].tolist()
    assert [token for row in predicted.values() for token in row] == text
    for row, tokens in read.items():
        assert tokens == [BOS_ID, *predicted[row][:-1]]
    lengths = [len(row) for row in predicted.values()]
    assert max(lengths) - min(lengths) <= 2 * 8
    for start in (0, 1, len(batches) - 1):  # a resumption sees what it would have seen
        again = loader._epoch(3, start)
        for (number, batch), (other, expected) in zip(again, batches[start:], strict=True):
            assert number == other
            assert torch.equal(batch.target_input, expected.target_input)


def test_the_gradient_is_that_of_the_segments_with_detached_memories(segments, tmp_path):
    """Two steps by the trainer's own loop against the formula by hand."""
    recipe = segments(
        model__dropout=0.0, training__max_steps=1, training__accumulate=3,
        training__clip_norm=0.0,
    )  # fmt: skip
    seen = []
    update = Trainer._update

    def updating(self, batches, window):
        model = self.model
        weights = {name: weight.clone() for name, weight in model.state_dict().items()}
        original = self.processes.update
        self.processes.update = lambda model, _: seen.append(
            (weights, {n: w.grad.clone() for n, w in model.named_parameters()})
        )
        update(self, batches, window)
        self.processes.update = original

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_update", updating)
        train(recipe, tmp_path / "run")
    ((weights, by_name),) = seen
    _, _, corpus = examples(recipe)
    model = load_model_directory(tmp_path / "run", tasks=("language-model",)).model
    model.load_state_dict(weights)
    model.requires_grad_()
    total, n_tokens, earlier = 0.0, 0, ()
    for _, (_, batch) in zip(range(3), SegmentLoader(corpus, 24)._epoch(0, 0), strict=False):
        hidden, earlier = model.read_on(batch.target_input, earlier, 8)
        logits = functional.linear(hidden, model.output_matrix)
        total += functional.cross_entropy(logits.mT, batch.target_output, reduction="sum")
        n_tokens += batch.target_output.numel()
    (total / n_tokens).backward()
    for name, weight in model.named_parameters():
        assert torch.allclose(weight.grad, by_name[name], rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("positions", ["segments", "rotary"])
def test_training_learns_and_resumes_exactly(segments, tmp_path, positions):
    recipe = segments(model__positions=positions, training__accumulate=2)
    state = train(recipe, tmp_path / "whole").state
    first, last = (state.validations[place]["loss"] for place in (0, -1))
    assert last < first < math.log(10)
    crash_at(recipe, tmp_path / "run", 11)
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "run",
              observers=[at(13, lambda: signal.raise_signal(signal.SIGTERM))])  # fmt: skip
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
    held = load_tensors(tmp_path / "run" / "checkpoints" / "step-000016" / "optimizer.safetensors")
    assert held["memory.layer.0"].shape[1:] == (12, 16)


def test_a_resumption_without_the_memory_would_end_otherwise(segments, tmp_path, monkeypatch):
    recipe = segments()
    train(recipe, tmp_path / "whole")
    crash_at(recipe, tmp_path / "run", 11)
    monkeypatch.setattr("tformer_cli.trainer.segment_memory.SegmentMemory.restore",
                        lambda *_: None)  # fmt: skip
    train(recipe, tmp_path / "run")
    assert digest(tmp_path / "run") != digest(tmp_path / "whole")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_rollback_goes_on_without_a_memory(segments, tmp_path, monkeypatch, is_killed):
    recipe = segments(training__max_steps=12)
    next_batches, true_loss, place, bad = Trainer._next_batches, gradients.projected_loss, [], [7]

    def noting(self, batches, n_batches):
        group = next_batches(self, batches, n_batches)
        place[:] = [self.state.position.batch]
        return group

    def loss(hidden, *others):
        return true_loss(hidden * (math.nan if place == bad else 1.0), *others)

    monkeypatch.setattr(Trainer, "_next_batches", noting)
    monkeypatch.setattr(gradients, "projected_loss", loss)
    watcher = Watcher()
    train(recipe, tmp_path / "whole", observers=[watcher])
    assert [event.failed_step for event in watcher.of(RolledBack)] == [7]
    if is_killed:
        save = RunSaver.save_rollback
        with monkeypatch.context() as patch:

            def save_and_fail(*arguments):
                save(*arguments)
                raise KeyError("the power is cut")

            patch.setattr(RunSaver, "save_rollback", save_and_fail)
            with pytest.raises(KeyError, match="power"):
                train(recipe, tmp_path / "run")
        train(recipe, tmp_path / "run")
        assert digest(tmp_path / "run") == digest(tmp_path / "whole")


@pytest.fixture
def run(segments, tmp_path):
    recipe = segments(training__max_steps=60, model__dropout=0.0, training__learning_rate=0.02)
    state = train(recipe, tmp_path / "run").state
    return tmp_path / "run", state


@torch.inference_mode()
def test_scores_are_those_of_one_pass_with_its_mask(run):
    path, state = run
    directory = load_model_directory(path, tasks=("language-model",))
    model, ids = directory.model, directory.tokenizer.target.encode_phrases([TEXT])[0]
    nothing = torch.zeros(1, 1, dtype=torch.int64)
    logits = {}
    for segment in (8, 9):
        model.config = type(model.config)(**{**vars(model.config), "max_positions": segment})
        whole = model(nothing, nothing == 0, torch.tensor([[BOS_ID, *ids[:-1]]]))[0]
        logits[segment] = functional.cross_entropy(whole, torch.tensor(ids)).item()
    assert state.validations[-1]["loss"] == pytest.approx(logits[8], rel=1e-5)
    opened = open_model(path, "generate", device="cpu")
    evaluation = evaluate_texts(opened, TEXT.split("\n")[:-1])
    assert evaluation.scores.loss == pytest.approx(logits[9], rel=1e-5)
    assert evaluation.signature == "text:stream|window:9|stride:9|memory:12"
    assert evaluation.scores.n_tokens == len(ids)
    with pytest.raises(UsageError, match="--stride: MODEL remembers 12 tokens before each window"):
        evaluate_texts(opened, [TEXT], stride=4)


@torch.inference_mode()
def test_texts_go_on_beyond_the_longest_segment(run):
    path, _ = run
    prompt = "abcabcabc\n\nbcabca\ncabc"
    (result,) = generate_texts(path, [prompt], beam_size=1, max_length=40)
    text = result.texts[0]
    assert not result.is_truncated
    assert len(text.token_ids) == 40
    directory = load_model_directory(path, tasks=("language-model",))
    model, ids = directory.model, directory.tokenizer.target.encode_phrases([prompt])[0]
    nothing = torch.zeros(1, 1, dtype=torch.int64)
    tokens = [BOS_ID, *ids, *text.token_ids]
    logits = model(nothing, nothing == 0, torch.tensor([tokens]))[0, len(ids) : -1]
    logits[:, :EOS_ID] = -math.inf
    assert logits.argmax(-1).tolist() == list(text.token_ids)
    (beam,) = generate_texts(path, [prompt], beam_size=4, max_length=30)
    for hypothesis in (text, beam.texts[0]):
        tokens = [BOS_ID, *ids, *hypothesis.token_ids]
        logits = model(nothing, nothing == 0, torch.tensor([tokens]))[0, len(ids) : -1]
        loss = functional.cross_entropy(logits, torch.tensor(hypothesis.token_ids), reduction="sum")
        assert hypothesis.log_probability == pytest.approx(-loss.item(), rel=1e-4)


def test_a_dry_run_shows_rows(segments):
    plan = plan_training(segments())
    assert plan.batch_shapes[0] == (3, 1, 8)


def test_a_batch_that_does_not_fit_is_one_line(segments, tmp_path, monkeypatch):
    def failing(*ignored, **also):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(memory, "add_gradients", failing)
    with pytest.raises(TformerError, match=r"training.tokens_per_batch: a batch does not fit"):
        train(segments(), tmp_path / "run")


def test_several_processes_are_refused(segments, tmp_path, monkeypatch):
    from tformer_cli.trainer.processes.group import Processes

    monkeypatch.setattr(Processes, "world_size", 2)
    with pytest.raises(RecipeError, match=r"model.memory: works only with one process, but"):
        train(segments(), tmp_path / "run")
