"""Validation that processes share."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from tests.zoo import RECIPES, recipe_of, tformer
from tformer_cli.trainer.processes.distributed import JoinedProcesses
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.launch import Launch
from tformer_cli.trainer.processes.signals import StopRequested

N_PROCESSES = 3


def divide_in_turns(_, items, compute):
    """As several processes do, one after the other."""
    ranks = range(N_PROCESSES)
    shares = [
        json.loads(json.dumps(compute(items[rank::N_PROCESSES]) if rank < len(items) else []))
        for rank in ranks
    ]
    return [shares[number % N_PROCESSES][number // N_PROCESSES] for number in range(len(items))]


def validations(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [
        {key: value for key, value in line.items() if "seconds" not in key}
        for line in lines
        if line["kind"] == "validation"
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_shares_of_a_validation_give_the_scores_of_the_whole(zoo, tmp_path, monkeypatch, name):
    (tmp_path / "recipe.toml").write_text(recipe_of(name, zoo.inputs))
    found = []
    for kind in ("whole", "shared"):
        if kind == "shared":
            monkeypatch.setattr(Processes, "divide", divide_in_turns)
        tformer(
            "train", tmp_path / "recipe.toml", "-o", tmp_path / kind, "-q", "--device", "cpu",
            "--set", "validation.every=1", "--set", "validation.max_sentences=0",
            "--max-steps", 2,
        )  # fmt: skip
        found.append(validations(tmp_path / kind))
    assert len(found[0]) == 2
    assert found[0] == found[1]


def divide_in_threads(items, compute_of):
    """What each of three processes gets, which here are threads with one store."""
    store = HashStore()

    def work(rank):
        launch = Launch(rank=rank, world_size=N_PROCESSES)
        joined = JoinedProcesses(launch, store, torch.device("cpu"), shards_optimizer=False)
        try:
            return joined.divide(items, compute_of(rank)), joined.divide([rank], lambda n: n)
        except StopRequested:
            return joined.divide(["after"], lambda words: [f"{word} a stop" for word in words])

    with ThreadPoolExecutor(N_PROCESSES) as pool:
        return list(pool.map(work, range(N_PROCESSES)))


@pytest.mark.parametrize("n_items", [0, 1, 2, 3, 7])
def test_each_process_computes_its_items_and_has_all_values_to_the_last_bit(n_items):
    items = [number / 7 for number in range(n_items)]
    computed = []

    def compute_of(rank):
        return lambda share: computed.append((rank, share)) or [item**0.5 for item in share]

    for values, first in divide_in_threads(items, compute_of):
        assert values == [item**0.5 for item in items]
        assert first == [0]  # of an item that each names otherwise, the first one's counts
    assert sorted(item for _, share in computed for item in share) == items
    assert len({rank for rank, _ in computed}) == min(n_items, N_PROCESSES)


def test_a_stop_of_one_process_stops_all_at_the_same_place():
    def compute_of(rank):
        def compute(share):
            if rank == 1:
                raise StopRequested
            return share

        return compute

    assert divide_in_threads(range(5), compute_of) == [["after a stop"]] * N_PROCESSES
