import json
import re
import shutil
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from tformer_cli.artifacts.shortlist_file import save_shortlist
from tformer_cli.cli.commands.benchmark import MeasuringOptions, _notes, show_speeds
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.evaluate.benchmark import Setting, benchmark, percentile, stored_precision
from tformer_cli.foreign.export import export_int8
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.search.engine import Shortlist
from tformer_cli.text.tokenizer import read_tokenizer

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
    assert speed.peak_memory > 40e6
    assert told == [3]
    assert speed.record()["beam_size"] == 2


def test_integers_are_measured_as_they_are(model, tmp_path):
    export_int8(model, tmp_path / "int8")
    assert stored_precision(model) == "float32"
    assert stored_precision(tmp_path / "int8") == "int8"
    (setting,) = MeasuringOptions(beam_size=[1]).settings(tmp_path / "int8")
    (speed,) = benchmark(tmp_path / "int8", ["A dog"], [setting], rounds=1, threads=1)
    assert speed.record()["precision"] == "int8"
    given = MeasuringOptions(beam_size=[1], precision=["float32"])
    with pytest.raises(ArtifactError, match="holds int8 weights"):
        benchmark(tmp_path / "int8", ["A dog"], given.settings(tmp_path / "int8"), rounds=1)


@pytest.fixture
def talkative(model, tmp_path):
    """The same model with translations that are long enough for 4-grams."""
    path = shutil.copytree(model, tmp_path / "talkative")
    config = json.loads((path / "config.json").read_text())
    config["decoding"] |= {"min_length": 25, "max_length": 30}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_shortlist_is_compared_with_none_in_speed_and_bleu(talkative, tmp_path):
    model, n_tokens = talkative, read_tokenizer(talkative).vocab_size
    path = tmp_path / "few"  # every translation is one of six tokens
    save_shortlist(path, Shortlist(6, np.zeros(n_tokens + 1, np.int64), np.array([], np.int32)))
    lines = ["A dog", "", "Two men run in the snow."]
    unlisted = Setting(engine="tformer", precision="float32", beam_size=2, shortlist="none")
    settings = [unlisted, replace(unlisted, shortlist=str(path))]
    texts = [translation.text for translation in translate_lines(model, lines, beam_size=2)]
    speeds = benchmark(model, lines, settings, references=[texts, texts], rounds=1, threads=1)
    assert [speed.setting for speed in speeds] == settings
    assert speeds[0].bleu.value == pytest.approx(100)
    assert speeds[1].bleu.value < 50
    record = speeds[1].record()
    assert (record["shortlist"], record["bleu"]) == (str(path), speeds[1].bleu.value)
    assert record["bleu_signature"].startswith("nrefs:2|")
    console = Console(file=StringIO(), width=80)
    show_speeds(console, speeds)
    shown = console.file.getvalue()
    assert "BLEU" in shown
    assert re.findall(r"float32 +2 (\w+)", shown)[:2] == ["none", "few"]
    *_, cost = _notes(speeds, 1)
    assert cost.startswith("shortlist few, beam 2: ")
    assert f"BLEU {speeds[1].bleu.value - 100:+.2f}" in cost
    with pytest.raises(DataError, match="--source, --reference 1: different numbers of lines"):
        benchmark(model, lines, settings, references=[["a"]], rounds=1)


def test_a_failed_measurement_is_reported(model):
    with pytest.raises(DataError, match="no lines to translate"):
        benchmark(model, ["", " "], [SETTING])
    other = Setting(engine="tformer", precision="float32", beam_size=0)
    with pytest.raises(UsageError, match="--beam-size: must be 1 to "):
        benchmark(model, ["A dog"], [other], rounds=1)
