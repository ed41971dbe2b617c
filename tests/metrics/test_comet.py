import sys
from types import SimpleNamespace

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.evaluate.comparison.paired_tests import MeasuredMetric, TestSettings, paired_test
from tformer_cli.metrics import comet
from tformer_cli.metrics.comet import Comet, check_installed

SOURCES, REFERENCES = ["eins", "zwei", "drei", "vier"], ["one", "two", "three", "four"]


class BestModelPublisher:
    """A model with the interface of COMET's: it finds the share of equal letters."""

    def __init__(self):
        self.asked = []

    def predict(self, samples, gpus, progress_bar, num_workers):
        self.asked += samples
        pairs = [(one["mt"], one["ref"]) for one in samples]
        equal = [sum(a == b for a, b in zip(*pair, strict=False)) for pair in pairs]
        return SimpleNamespace(
            scores=[n / len(ref) for n, (_, ref) in zip(equal, pairs, strict=True)]
        )


@pytest.fixture
def judge(monkeypatch):
    one = BestModelPublisher()

    def download_model(name):
        if name != "Unbabel/wmt22-comet-da":
            raise KeyError(f"Model '{name}' not supported by COMET.")
        return "checkpoint"

    package = SimpleNamespace(load_from_checkpoint=lambda path: one, download_model=download_model)
    monkeypatch.setitem(sys.modules, "comet", package)
    monkeypatch.setattr(comet, "find_spec", lambda name: package)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.2.7")
    return one


def test_the_score_is_the_mean_over_sentences_and_is_tested_as_all_others(judge):
    metric = MeasuredMetric(Comet(SOURCES), [REFERENCES])
    worse = ["one", "two", "xxxxx", "four"]
    (found,) = paired_test([("a", REFERENCES), ("b", worse)], [metric], TestSettings(samples=100))
    assert found.name == "COMET"
    assert [score.value for score in found.scores] == [100.0, 75.0]
    assert "|seed:12345|" in found.signature
    assert found.signature.endswith("|model:Unbabel/wmt22-comet-da|version:comet-2.2.7")
    assert judge.asked[0] == {"src": "eins", "mt": "one", "ref": "one"}
    assert len(judge.asked) == 8  # each translation is judged once
    assert metric.sentence_scores(worse) == [100.0, 100.0, 0.0, 100.0]


def test_a_model_that_cannot_be_had_is_one_line(judge):
    with pytest.raises(
        UsageError, match=r"--comet-model: made/up cannot be loaded .*not supported"
    ):
        Comet(SOURCES, "made/up")


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(comet, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as refused:
        check_installed()
    assert str(refused.value) == (
        "--metric: comet needs the package unbabel-comet; install it with "
        "pip install 'tformer[comet]', or omit comet"
    )
