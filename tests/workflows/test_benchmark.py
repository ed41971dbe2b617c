import pytest

from tformer_cli.errors import DataError, UsageError
from tformer_cli.workflows.benchmark import Setting, benchmark, percentile

SETTING = Setting(engine="tformer", precision="float32", beam_size=2)


def test_percentiles_are_values_that_were_measured():
    values = [float(i) for i in range(1, 101)]
    assert [percentile(values, p) for p in (1, 50, 95, 99, 100)] == [1.0, 50.0, 95.0, 99.0, 100.0]
    assert percentile([0.2], 50) == percentile([0.2], 99) == 0.2
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


def test_measures_a_setting_in_a_process_of_its_own(model):
    told = []
    lines = ["A dog", "", "Two men run in the snow."]
    (speed,) = benchmark(model, lines, [SETTING], rounds=1, threads=1, progress=told.append)
    assert speed.setting == SETTING
    assert speed.n_lines == 2
    assert speed.lines_per_second > 0
    # the fixture's model writes six tokens and an end of sentence
    assert speed.tokens_per_second == pytest.approx(7 * speed.lines_per_second)
    assert 0 < speed.latency_p50 <= speed.latency_p95 <= speed.latency_p99
    assert speed.peak_memory > 50e6
    assert told == [3]
    assert speed.record()["beam_size"] == 2


def test_a_failed_measurement_is_reported(model):
    with pytest.raises(DataError, match="no lines to translate"):
        benchmark(model, ["", " "], [SETTING])
    other = Setting(engine="tformer", precision="float32", beam_size=0)
    with pytest.raises(UsageError, match="--beam-size: must be 1 to "):
        benchmark(model, ["A dog"], [other], rounds=1)
