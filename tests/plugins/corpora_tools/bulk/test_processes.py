"""The processes by themselves: what stands for the worker needs no model, and dies when told to."""

import json
import os
import signal
from collections import Counter

import pytest
import torch

from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.plugins.corpora_tools.bulk import processes, translate_shard
from tformer_cli.plugins.corpora_tools.bulk.processes import LocalProcesses
from tformer_cli.plugins.corpora_tools.bulk.shards import Fields, Shard, Source, Task

WORKER = """
import json, os, signal, sys
from pathlib import Path

def deaths_before(number):
    path = Path(about["model"]) / f"{number}.deaths"
    n_deaths = int(path.read_text()) if path.exists() else 0
    path.write_text(str(n_deaths + 1))
    return n_deaths

for line in sys.stdin:
    record = json.loads(line)
    if "opening" in record:
        about = json.loads(record["opening"])
        if deaths_before("start") < about["dies"].get("start", 0):
            sys.exit(3)
        answer = {"ready": about.get("answer") or {"place": "cpu", "threads": about["options"]}}
    else:
        number = record["task"]["shard"]["first"]
        print(json.dumps({"rows": 1}), flush=True)
        if str(number) in about["dies"] and deaths_before(number) < about["dies"][str(number)]:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = {"done": {"number": number, "process": os.getpid()}}
    print(json.dumps(answer), flush=True)
"""
SOURCE = Source(kind="text", name="a", path="/a", rows=9, content="")


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Runs shards; returns the events, and all processes that were started."""
    (tmp_path / "worker_that_dies.py").write_text(WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "MODULE", "worker_that_dies")
    popen, children = processes.subprocess.Popen, []
    monkeypatch.setattr(
        processes.subprocess,
        "Popen",
        lambda *a, **k: children.append(popen(*a, **k)) or children[-1],
    )

    def start(n_shards, n_workers, dies=(), **more):
        about = {"model": str(tmp_path), "options": {}, "dies": dict(dies), **more}
        tasks = [
            (
                number,
                Task(
                    directory="/d",
                    shard=Shard(file=f"{number}", source=0, first=number, rows=1),
                    source=SOURCE,
                    fields=Fields(),
                ),
            )
            for number in range(n_shards)
        ]
        with LocalProcesses(n_workers, threads=3).start(json.dumps(about)) as running:
            events = list(running.run(tasks))
        assert all(child.poll() is not None for child in children)  # none is left behind
        return events, children

    return start


def count_done(events):
    return Counter(event.answer["number"] for event in events if event.kind == "done")


def test_every_shard_is_done_once_by_as_many_processes_as_there_is_work_for(started):
    events, children = started(5, 3)
    assert count_done(events) == Counter(range(5))
    assert len(children) <= 3
    for event in events:
        assert event.answer is None or event.answer["number"] == event.number
    _, children = started(1, 8)
    assert len(children) <= 4  # three of before


@pytest.mark.parametrize("n_workers", [1, 2])
def test_the_shard_of_a_killed_process_is_done_by_another(started, n_workers):
    events, children = started(4, n_workers, {"1": 2, "3": 1})
    assert count_done(events) == Counter(range(4))
    lost = [event for event in events if event.kind == "lost"]
    assert Counter(event.number for event in lost) == {1: 2, 3: 1}
    assert all(event.reason.startswith("killed; memory may be short") for event in lost)
    assert sum(child.returncode == -signal.SIGKILL for child in children) == 3


def test_a_shard_that_kills_everyone_is_given_up_and_all_others_are_done(started):
    events, _ = started(4, 2, {"2": 99})
    assert count_done(events) == Counter([0, 1, 3])
    assert [event.kind for event in events if event.number == 2 and event.reason] == [
        "lost", "lost", "given up"
    ]  # fmt: skip


def test_processes_that_end_before_they_begin_are_tried_again_some_times(started, tmp_path):
    events, children = started(2, 1, {"start": 2})
    assert count_done(events) == Counter(range(2))
    assert [child.returncode for child in children[:2]] == [3, 3]
    (tmp_path / "start.deaths").unlink()
    with pytest.raises(TformerError, match=r"3 processes ended before .* \(exit status 3\); name"):
        started(2, 1, {"start": 99})


def test_an_error_of_the_model_is_that_of_the_program(started):
    with pytest.raises(ArtifactError, match=r"^m: no such model$"):
        started(1, 1, answer={"error": "m: no such model", "kind": "ArtifactError"})
    with pytest.raises(UsageError, match="--beam-size"):
        started(1, 1, answer={"error": "--beam-size: 0", "kind": "UsageError"})


@pytest.fixture
def openings(monkeypatch):
    """What stands for the processes says that it is on a machine with three GPUs."""

    class Worker(processes._Worker):
        def __init__(self, name, opening, threads, queue):
            self.name, self.number, self.options = name, None, json.loads(opening)["options"]
            self.device = self.options.get("device", "auto")
            place = self.device if "cuda" in self.device else "cuda"
            facts = {"place": place, "precision": "bfloat16", "n_gpus": 3}
            queue.put((self, {"ready": facts}))

        def close(self):
            pass

        def end(self):
            return ""

    monkeypatch.setattr(processes, "_Worker", Worker)


@pytest.mark.parametrize("device", ["auto", "cuda", None])
def test_processes_are_spread_over_the_gpus(openings, device):
    options = {"options": {} if device is None else {"device": device}}
    for n_workers, n_expected in ((None, 3), (8, 8), (2, 2)):
        with LocalProcesses(n_workers).start(json.dumps(options)) as running:
            assert running.n_workers == n_expected
            note = "--workers: 8 share 3 GPUs, each with its copy of the model"
            assert running.facts.get("notes", []) == ([note] if n_workers == 8 else [])
            for _ in range(4):
                running._start_one()
            workers = running._workers
            assert [worker.device[-1] for worker in workers] == [*"01201"]
            assert workers[0].options.get("device") == device  # which is the first of the visible
            assert [worker.options["device"] for worker in workers[1:3]] == ["cuda:1", "cuda:2"]
            assert {worker.options["precision"] for worker in workers[1:]} == {"bfloat16"}
            del workers[2]  # one that died
            running._start_one()
            assert workers[-1].options["device"] == "cuda:2"


def test_a_gpu_that_is_named_has_all_processes(openings):
    with LocalProcesses(2).start(json.dumps({"options": {"device": "cuda:1"}})) as running:
        running._start_one()
        assert [worker.options["device"] for worker in running._workers] == ["cuda:1"] * 2
    with LocalProcesses().start(json.dumps({"options": {"device": "cuda:1"}})) as running:
        assert running.n_workers == 1


def test_gpus_are_counted_where_the_model_is_open(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    counts = [translate_shard._count_gpus(place) for place in ("cpu", "cuda", "cuda:2")]
    assert counts == [0, 4, 4]


def test_threads_are_those_asked_for_or_the_processors_divided(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    messages = [
        (engine._n_workers, engine._threads)
        for engine in (
            LocalProcesses(),
            LocalProcesses(2),
            LocalProcesses(3),
            LocalProcesses(16),
            LocalProcesses(2, 1),
        )
    ]
    assert messages == [(8, 1), (2, 4), (3, 2), (16, 1), (2, 1)]
