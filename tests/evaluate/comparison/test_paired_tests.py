import json
import os
import re
import subprocess
import sys

import pytest
from sacrebleu.significance import PairedTest

from tests.evaluate.comparison.systems import REFERENCES, SYSTEMS
from tformer_cli.evaluate.comparison.paired_tests import MeasuredMetric, TestSettings, paired_test
from tformer_cli.metrics.scores import make_metric

METRICS = ("bleu", "chrf", "ter")
OPTIONS = {"paired-bootstrap": "bs", "paired-approximate-randomization": "ar"}


def results(name, samples, seed, metrics=METRICS):
    measured = [MeasuredMetric(make_metric(one), [REFERENCES]) for one in metrics]
    settings = TestSettings(name=name, samples=samples, seed=seed)
    return paired_test(list(SYSTEMS.items()), measured, settings)


@pytest.mark.parametrize("name", OPTIONS)
def test_p_values_are_those_of_the_sacrebleu_command(tmp_path, name):
    files = []
    for stem, lines in {"ref": REFERENCES, **SYSTEMS}.items():
        (tmp_path / stem).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.append(stem)
    short = OPTIONS[name]
    command = [
        *(sys.executable, "-m", "sacrebleu", files[0], "-i", *files[1:], "-m", *METRICS),
        *("--ter-case-sensitive", "-w", "4", "-f", "latex"),
        *(f"--paired-{short}", f"--paired-{short}-n", "200"),
    ]
    env = {**os.environ, "SACREBLEU_SEED": "77"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    theirs = re.findall(r"p = (\d\.\d+)", done.stdout)
    found = results(name, 200, 77)
    # sacreBLEU lists all metrics of a system, then the next system
    ours = [f"{one.scores[place].p_value:.4f}" for place in (1, 2) for one in found]
    assert len(theirs) == 6
    assert ours == theirs
    assert len(set(ours)) > 2
    for one in found:
        for score in one.scores:
            assert f"{score.value:.4f}" in done.stdout


@pytest.mark.parametrize("name", OPTIONS)
def test_all_numbers_are_those_of_sacrebleus_own_function(monkeypatch, name):
    monkeypatch.setenv("SACREBLEU_SEED", "5")
    metrics = {one: make_metric(one) for one in METRICS}
    signatures, theirs = PairedTest(
        list(SYSTEMS.items()),
        metrics,
        [list(REFERENCES)],
        test_type=OPTIONS[name],
        n_samples=100,
        n_ar_confidence=-1 if name == "paired-bootstrap" else 1000,
    )()
    for one in results(name, 100, 5):
        assert one.signature == str(signatures[one.name])
        assert [vars(score) for score in one.scores] == [
            {
                "value": their.score,
                "mean": pytest.approx(float(their.mean)),
                "interval": pytest.approx(float(their.ci)),
                "p_value": their.p_value,
                "equals_baseline": False if number else None,
                "wins": None,
            }
            for number, their in enumerate(theirs[one.name])
        ]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_system_that_is_the_baseline_again_is_never_significant(name):
    first = SYSTEMS["first"]
    spaced = [line.replace(" ", "  ") for line in first]  # the same to every metric
    texts = [("first", first), ("again", list(first)), ("spaced", spaced), *SYSTEMS.items()]
    measured = [MeasuredMetric(make_metric(one), [REFERENCES]) for one in ("bleu", "chrf")]
    for one in paired_test(texts[:3] + texts[4:], measured, TestSettings(name=name, samples=50)):
        again = one.scores[1]
        # that of sacreBLEU, which is demanded
        assert again.p_value == (1 / 51 if name == "paired-bootstrap" else pytest.approx(1 / 51))
        assert [score.equals_baseline for score in one.scores] == [None, True, True, False, False]
        assert [score.is_significant for score in one.scores[:4]] == [False, False, False, True]


def test_one_system_has_the_confidence_interval_of_the_sacrebleu_command(tmp_path):
    for stem, lines in {"ref": REFERENCES, "a": SYSTEMS["third"]}.items():
        (tmp_path / stem).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "-m", *METRICS, "-w", "4"),
        *("--ter-case-sensitive", "--confidence", "--confidence-n", "200"),
    ]
    env = {**os.environ, "SACREBLEU_SEED": "77"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    measured = [MeasuredMetric(make_metric(one), [REFERENCES]) for one in METRICS]
    settings = TestSettings(samples=200, seed=77)
    found = paired_test([("a", SYSTEMS["third"])], measured, settings)
    for ours, theirs in zip(found, json.loads(done.stdout), strict=True):
        (score,) = ours.scores
        assert ours.signature == theirs["signature"]
        assert round(score.value, 4) == theirs["score"]
        assert round(score.mean, 4) == theirs["confidence_mean"]
        assert round(score.interval, 4) == theirs["confidence_var"]
        assert (score.p_value, score.is_significant) == (None, False)


def test_the_seed_is_not_left_in_the_environment(monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    before = results("paired-bootstrap", 50, 1, ["bleu"])
    assert "SACREBLEU_SEED" not in os.environ
    assert "|seed:1|" in before[0].signature
    monkeypatch.setenv("SACREBLEU_SEED", "3")
    assert results("paired-bootstrap", 50, 1, ["bleu"]) == before
    assert os.environ["SACREBLEU_SEED"] == "3"


@pytest.mark.parametrize("settings", [{"seed": 0}, {"samples": -1}])
def test_a_seed_that_would_draw_anything_is_refused(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}: must be at least"):
        TestSettings(**settings)


def test_the_number_of_samples_is_sacrebleus_own_by_default():
    assert TestSettings().n_samples == 1000
    assert TestSettings(name="paired-approximate-randomization").n_samples == 10000
    assert TestSettings(samples=7).n_samples == 7
