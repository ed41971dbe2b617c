import os
import re
import subprocess
import sys

import pytest
from sacrebleu.significance import PairedTest

from tests.evaluation.comparison.systems import REFERENCES, SYSTEMS
from tformer_cli.evaluation.comparison.measured import MeasuredMetric
from tformer_cli.evaluation.comparison.paired_tests import TestSettings, paired_test
from tformer_cli.evaluation.scores import make_metric

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
            }
            for their in theirs[one.name]
        ]


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
