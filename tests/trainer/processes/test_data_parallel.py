import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.text.masking import Masking
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.trainer.gradients import add_gradients
from tformer_cli.trainer.processes.data_parallel import share_of
from tformer_cli.trainer.report_interval import ReportInterval

SCRIPT = Path(__file__).with_name("forked_passes.py")


SCENARIOS = [(n, "plain") for n in (1, 2, 3, 4)] + [(1, "few"), (4, "few"), (3, "memory")]
SCENARIOS += [(2, "compiled")]


@pytest.fixture(scope="module")
def gradients():
    """What each of n processes found: digests and samples of its gradients, by step."""
    words = [str(word) for scenario in SCENARIOS for word in scenario]
    done = subprocess.run(
        # Only these tests fork: torchrun and `--processes` start programs
        [sys.executable, "-W", "ignore::DeprecationWarning:__main__", str(SCRIPT), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[3]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return dict(zip(SCENARIOS, json.loads(done.stdout), strict=True))


def digests(processes):
    return {digest for process in processes for digest, _ in process["steps"]}


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_all_steps_and_processes_have_the_same_bits_and_the_sum_is_that_of_one(gradients, n):
    processes = gradients[n, "plain"]
    assert len(digests(processes)) == 1
    [single] = gradients[1, "plain"]
    assert processes[0]["steps"][0][1] == pytest.approx(single["steps"][0][1], abs=1e-6)


def test_processes_with_compiled_layers_have_the_sum_of_one_without(gradients):
    processes = gradients[2, "compiled"]
    assert len(digests(processes)) == 1
    [single] = gradients[1, "plain"]
    assert processes[0]["steps"][0][1] == pytest.approx(single["steps"][0][1], abs=1e-6)


def test_processes_without_batches_add_zeros(gradients):
    processes = gradients[4, "few"]
    assert [process["parts"] for process in processes].count([0, 0, 0]) >= 1
    assert len(digests(processes)) == 1
    [single] = gradients[1, "few"]
    assert processes[0]["steps"][0][1] == pytest.approx(single["steps"][0][1], abs=1e-6)


def test_a_last_pass_that_does_not_fit_is_repeated_by_its_process_alone(gradients):
    assert [process["parts"][0] for process in gradients[3, "plain"]] == [1, 2, 1]
    processes = gradients[3, "memory"]
    assert [process["parts"] for process in processes] == [[1, 1, 1], [2, 2, 2], [2, 2, 2]]
    assert processes[2]["n_sent"][0] > 0  # others had been given a part of the gradient by then
    steps = [[digest for digest, _ in process["steps"]] for process in processes]
    assert steps[0] == steps[1] == steps[2]
    [single] = gradients[1, "plain"]
    for _, sample in processes[2]["steps"]:
        assert sample == pytest.approx(single["steps"][0][1], abs=1e-6)


def step(n_batches):
    """Batches of pairs that no two have the same tokens."""
    generator = torch.Generator().manual_seed(3)
    batches = []
    for _ in range(n_batches):
        n_pairs = int(torch.randint(3, 9, (1,), generator=generator))
        lengths = torch.randint(1, 12, (2, n_pairs), generator=generator).tolist()
        sides = [
            [torch.randint(4, 40, (length,), generator=generator).tolist() for length in side]
            for side in lengths
        ]
        batches.append(collate(*sides))
    return batches


def pairs(batches):
    texts = []
    for batch in batches:
        for source, target in zip(batch.source, batch.target_output, strict=True):
            texts.append((source[source != PAD_ID].tolist(), target[target != PAD_ID].tolist()))
    return sorted(texts)


def test_shares_of_masked_texts_keep_all_that_is_hidden():
    masking = Masking(mask_id=4, vocab_size=50)
    texts = [list(range(5, 5 + length)) for length in (30, 7, 12, 3, 21)]
    whole = masking.batch(texts, np.random.default_rng(1))
    shares = [batch for rank in range(3) for batch in share_of([whole], rank, 3)]
    assert sum(share.n_target_tokens for share in shares) == whole.n_target_tokens
    assert pairs(shares) == pairs([whole])
    assert all((share.source != PAD_ID).any(0).all() for share in shares)


@pytest.mark.parametrize(("n_batches", "world_size"), [(1, 2), (3, 2), (4, 2), (2, 5), (1, 30)])
def test_every_pair_falls_to_one_process(n_batches, world_size):
    batches = step(n_batches)
    shares = [share_of(batches, rank, world_size) for rank in range(world_size)]
    assert sorted(pair for share in shares for pair in pairs(share)) == pairs(batches)


def test_split_shares_are_balanced_to_within_a_pair_and_have_no_empty_columns():
    batches = step(3)
    shares = [share_of(batches, rank, 4) for rank in range(4)]
    tokens = [sum(len(s) + len(t) for s, t in pairs(share)) for share in shares]
    longest = max(len(s) + len(t) for s, t in pairs(batches))
    assert max(tokens) - min(tokens) <= 2 * longest
    for batch in (batch for share in shares for batch in share):
        assert batch.source_mask.any(0).all()
        assert (batch.target_output != PAD_ID).any(0).all()
        assert torch.equal(batch.target_input != PAD_ID, batch.target_output != PAD_ID)


@pytest.mark.parametrize(("n_batches", "world_size"), [(1, 2), (3, 2), (4, 2), (1, 12)])
def test_the_gradients_of_the_shares_sum_to_that_of_the_step(n_batches, world_size):
    batches = step(n_batches)

    def gradient(share):
        torch.manual_seed(1)
        sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "dropout": 0.0}
        model = Transformer(ModelConfig(**sizes, n_encoder_layers=1, n_decoder_layers=1), 40)
        n_target_tokens = sum(batch.n_target_tokens for batch in batches)
        add_gradients(
            model,
            share,
            ReportInterval(0.0),
            label_smoothing=0.1,
            precision="float32",
            n_target_tokens=n_target_tokens,
        )
        return [
            torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()
        ]

    shares = [gradient(share_of(batches, rank, world_size)) for rank in range(world_size)]
    for whole, *parts in zip(gradient(batches), *shares, strict=True):
        assert torch.allclose(sum(parts), whole, rtol=0.0, atol=1e-6)
