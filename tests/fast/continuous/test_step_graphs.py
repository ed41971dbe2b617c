import contextlib

import pytest
import torch

from tformer_cli.fast.continuous import step_graphs
from tformer_cli.fast.continuous.step_graphs import StepGraphs


class Recorder:
    """Stands for CUDA: a graph repeats the step it was recorded from, or something else."""

    def __init__(self, monkeypatch, *, replayed=None, fails=False):
        self.n_replays = 0
        self.streams = []
        self.step = None
        recorder = self

        class Graph:
            def replay(self):
                recorder.n_replays += 1
                (replayed or recorder.step)()

        @contextlib.contextmanager
        def recording(graph, pool, capture_error_mode):
            assert pool == (1, 2)
            if fails:
                raise RuntimeError("operation not permitted when stream is capturing\nmore")
            yield

        monkeypatch.setattr(StepGraphs, "_pool", None)
        monkeypatch.setattr(StepGraphs, "_failed", False)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "the stream before")
        monkeypatch.setattr(torch.cuda, "set_stream", self.streams.append)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (1, 2))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", recording)


class Counter:
    """A step that counts in a tensor."""

    def __init__(self, recorder=None):
        self.value = torch.zeros(2)
        self.value[1] = float("nan")
        self.n_calls = 0
        if recorder is not None:
            recorder.step = lambda: self.value.add_(1)

    def __call__(self):
        self.n_calls += 1
        self.value += 1


def make(monkeypatch, device, tell, *, after):
    monkeypatch.setattr(step_graphs, "CAPTURED_AFTER", after)
    return StepGraphs(device, tell)


def run(graphs, step, n, shape="shape"):
    for _ in range(n):
        graphs.run(shape, step, [step.value])


CUDA = torch.device("cuda")


def test_a_shape_is_recorded_once_it_has_been_used_often(monkeypatch):
    recorder = Recorder(monkeypatch)
    step, told = Counter(recorder), []
    graphs = make(monkeypatch, CUDA, told.append, after=3)
    run(graphs, step, 3)
    assert recorder.n_replays == 0
    run(graphs, step, 5)
    # of the fourth step there is one that is compared, one that is recorded and one replayed
    assert (step.n_calls, recorder.n_replays) == (5, 5)
    assert not told


def test_recorded_or_not_every_step_is_made_once(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", None)
    recorder = Recorder(monkeypatch)
    step = Counter(recorder)
    # a recording does not compute
    original = Counter.__call__
    graphs = make(monkeypatch, CUDA, None, after=2)
    is_recording = []

    @contextlib.contextmanager
    def recording(graph, pool, capture_error_mode):
        is_recording.append(True)
        yield
        is_recording.pop()

    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(Counter, "__call__", lambda self: None if is_recording else original(self))
    for n in range(1, 9):
        run(graphs, step, 1)
        assert step.value[0] == n


@pytest.mark.parametrize("fails", [True, False])
def test_graphs_that_fail_or_differ_are_given_up(monkeypatch, fails):
    recorder = Recorder(monkeypatch, replayed=lambda: None, fails=fails)
    step, told = Counter(recorder), []
    graphs = make(monkeypatch, CUDA, told.append, after=1)
    for n in range(1, 6):
        run(graphs, step, 1)
        assert step.value[0] == n
    reason = "operation not permitted when stream is capturing"
    reason = reason if fails else "a replay gave different numbers"
    assert told == [f"translating without CUDA graphs, which is slower: {reason}"]
    assert recorder.streams == ["the stream before"] * fails
    # and nobody else tries again
    run(make(monkeypatch, CUDA, told.append, after=0), step, 2)
    assert (len(told), step.value[0]) == (1, 7)


def test_the_cpu_records_nothing(monkeypatch):
    recorder = Recorder(monkeypatch)
    step = Counter(recorder)
    run(make(monkeypatch, torch.device("cpu"), None, after=1), step, 9)
    assert (step.n_calls, recorder.n_replays) == (9, 0)


def test_each_shape_counts_for_itself(monkeypatch):
    recorder = Recorder(monkeypatch)
    step = Counter(recorder)
    graphs = make(monkeypatch, CUDA, None, after=2)
    for shape in ("a", "b", "c"):
        run(graphs, step, 2, shape)
    assert recorder.n_replays == 0
