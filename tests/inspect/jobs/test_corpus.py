import weakref

import pytest
import torch

from tests.inspect.conftest import batch_of
from tformer_cli.errors import DataError
from tformer_cli.heads import roles
from tformer_cli.heads.names import KINDS, head_layout
from tformer_cli.inspect.capture import forced
from tformer_cli.inspect.heads.metrics import HeadStatistics
from tformer_cli.inspect.jobs.heads import HeadInspector
from tformer_cli.inspect.jobs.reader import CorpusInspector, count_frequencies
from tformer_cli.kinds.opening import open_model

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "dogs", "A woman and a dog."]
TARGETS = ["dogs", "the street in the snow", "x", "A man sleeps", "a woman."]


@pytest.fixture(scope="module")
def opened(model):
    return open_model(model, device="cpu", precision="float32", n_best=1)


def summed_up(opened, lines, targets=None, **options):
    inspector = CorpusInspector(opened, **options)
    assert list(inspector.read(lines, targets))[-1] == len(lines)
    return inspector


@pytest.mark.parametrize("targets", [None, TARGETS])
def test_means_are_those_of_the_sentences_inspected_one_by_one(opened, targets):
    records = [r for r in HeadInspector(opened).inspect(LINES, targets) if r.maps is not None]
    for summary in summed_up(opened, LINES, targets).summaries():
        kind = summary.head.kind
        rows = [r.maps.weights(summary.head).shape[0] for r in records]
        entropies = [r.metrics[summary.head]["entropy"] for r in records]
        mean = sum(n * value for n, value in zip(rows, entropies, strict=True)) / sum(rows)
        assert summary.metrics["entropy"] == pytest.approx(mean, abs=1e-6), kind
        assert summary.n_rows == sum(rows)
        assert summary.n_sentences == 4


def test_the_size_of_buffers_changes_nothing_but_rounding(opened):
    lines, targets = LINES * 3, TARGETS * 3
    whole = summed_up(opened, lines, targets).summaries()
    for summary, other in zip(
        whole, summed_up(opened, lines, targets, buffer_lines=2).summaries(), strict=True
    ):
        assert summary.metrics == pytest.approx(other.metrics, abs=1e-6)
        for name, interval in summary.intervals.items():
            assert interval == pytest.approx(other.intervals[name], abs=1e-6)


def test_heads_are_selected_and_long_lines_omitted(opened):
    lines = ["A man", "long line " * 50]
    inspector = summed_up(opened, lines, ["dogs", "dog"], heads=["cross.0.1", "enc.1.0"])
    assert [str(s.head) for s in inspector.summaries()] == ["enc.1.0", "cross.0.1"]
    assert inspector.report.too_long == 1
    assert inspector.summaries()[0].n_sentences == 1
    with pytest.raises(DataError, match="end before the other lines"):
        summed_up(opened, lines, ["dogs"])


def test_a_batch_is_summed_up_as_its_sentences_one_by_one(opened, monkeypatch):
    monkeypatch.setattr(roles, "FREQUENT", 10)
    lines, targets = LINES * 20, TARGETS * 20
    frequencies = count_frequencies(opened, lines)
    inspector = summed_up(opened, lines, targets, frequencies=frequencies, buffer_lines=70)
    layout = head_layout(opened.directory.model)
    expected = HeadStatistics(layout, KINDS)
    for record in HeadInspector(opened).inspect(lines, targets):
        if record.maps is not None:
            rare = frequencies.rare_tokens(record.maps.source_ids).positions
            expected.add_batch([record.index], batch_of(record.maps), [rare])
    assert inspector.report.rare == 20
    for summary, other in zip(inspector.summaries(), expected.summaries(), strict=True):
        assert ("rare_argmax" in summary.metrics) == (summary.head.kind == "enc")
        assert summary.metrics == pytest.approx(other.metrics, abs=1e-6)
        assert (summary.n_rows, summary.n_sentences) == (other.n_rows, other.n_sentences)
        assert summary.residual == pytest.approx(other.residual, abs=1e-6)
        assert summary.role == other.role
        for name, interval in summary.intervals.items():
            assert interval == pytest.approx(other.intervals[name], abs=1e-6)


def test_one_batch_is_held_at_a_time_and_no_product_is_kept(opened, monkeypatch):
    monkeypatch.setattr(forced, "MOST_CELLS", 1)
    captured, held, settings = forced.capture_batches, [], []

    def watch_batches(*arguments):
        for numbers, batch in captured(*arguments):
            assert all(reference() is None for reference in held), "the one before is still held"
            held[:] = [weakref.ref(batch)]
            settings.append(torch.backends.mkldnn.matmul.fp32_precision)
            batches = [(numbers, batch)]
            del batch
            yield batches.pop()

    monkeypatch.setattr(forced, "capture_batches", watch_batches)
    before = torch.backends.mkldnn.matmul.fp32_precision
    assert summed_up(opened, LINES, TARGETS).n_sentences == len(settings) == 4
    assert set(settings) == {"ieee"}, "oneDNN would keep something for every shape"
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_rare_source_tokens_may_lie_beyond_the_end_of_every_target(opened, monkeypatch):
    monkeypatch.setattr(roles, "FREQUENT", 10)
    lines = ["the dog and the man and the dog and the man in the street and Zoë"] * 20
    frequencies = count_frequencies(opened, [*lines, *["the dog and the man in the street"] * 20])
    inspector = summed_up(opened, lines, ["dogs"] * 20, frequencies=frequencies)
    measured = {s.head.kind for s in inspector.summaries() if "rare_argmax" in s.metrics}
    assert measured == {"enc"}
