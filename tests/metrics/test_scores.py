"""Scores of translations and labels, their test sets and tokenizers."""

import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import get_args

import pytest
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics.bleu import BLEU

from tformer_cli.errors import DataError, UsageError
from tformer_cli.evaluate.evaluate import score_hypotheses
from tformer_cli.metrics import scores
from tformer_cli.metrics.choices import Tokenization
from tformer_cli.metrics.labels import score_labels
from tformer_cli.metrics.scores import bleu, check_counts, check_tokenizer, chrf, ter
from tformer_cli.metrics.significance import MeasuredMetric, TestSettings, paired_test
from tformer_cli.plugins.corpora_tools.compare import files_of_test_set
from tformer_cli.plugins.corpora_tools.comparison import comet
from tformer_cli.plugins.corpora_tools.comparison.comet import Comet, check_installed
from tformer_cli.wording import installing

HYPOTHESES = ["the Cat sat on a mat .", "He doesn't know, does he?", "", "It rained yesterday."]
REFERENCES = [
    ["The cat sat on the mat.", "He does not know, does he?", "Nothing.", "It rained yesterday."],
    ["A cat sat on the mat.", "He doesn't know it, does he?", "", "Yesterday it rained."],
]


def sacrebleu_says(tmp_path, hypotheses, references, *options):
    """Scores and signatures of sacreBLEU's own command."""
    files = []
    for name, lines in (("hyp", hypotheses), *((f"ref{i}", r) for i, r in enumerate(references))):
        file = tmp_path / name
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.append(str(file))
    command = [sys.executable, "-m", "sacrebleu", *files[1:], "-i", files[0], "-f", "json"]
    command += ["-m", "bleu", "chrf", "ter", "-w", "10", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("n_references", [1, 2])
@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_those_of_sacrebleu_itself(tmp_path, n_references, lowercase):
    references = REFERENCES[:n_references]
    options = ["-lc", "--chrf-lowercase"] if lowercase else []
    ours_all = score_hypotheses(HYPOTHESES, references, lowercase=lowercase).scores
    theirs_all = sacrebleu_says(tmp_path, HYPOTHESES, references, *options)
    assert ours_all[2] == ter(HYPOTHESES, references)
    for ours, theirs in zip(ours_all, theirs_all, strict=True):
        assert ours.name == theirs["name"]
        assert ours.value == pytest.approx(theirs["score"], abs=1e-9)
        assert ours.signature == theirs["signature"]


def test_a_pinned_score():
    assert bleu(["a b c d e"], [["a b c d f"]]).value == pytest.approx(66.87403049764218)
    assert bleu(["A B C D"], [["a b c d"]]).value == pytest.approx(0.0)
    assert bleu(["A B C D"], [["a b c d"]], lowercase=True).value == pytest.approx(100.0)


def test_a_bleu_without_4_grams_has_a_hint():
    assert bleu(["A dog.", "", "Yes"], [["A dog."] * 3]).hint.endswith("so it is 0; use chrF")
    assert bleu(["A dog."], [["A dog runs fast."]]).hint  # whatever the reference
    assert bleu(["A dog.", "so b c d"], [["A dog.", "e f g h"]]).hint == ""
    assert bleu(["A dog."], [["A dog."]], tokenize="char").hint == ""  # its words are characters
    assert chrf(["A dog."], [["A dog."]]).hint == ter(["A dog."], [["A dog."]]).hint == ""


def test_signatures_say_how():
    assert bleu(HYPOTHESES, REFERENCES).signature.startswith(
        "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )
    assert "case:lc" in bleu(HYPOTHESES, REFERENCES, lowercase=True).signature
    assert "tok:intl" in bleu(HYPOTHESES, REFERENCES, tokenize="intl").signature


def test_different_numbers_of_lines_are_an_error_with_both_numbers():
    with pytest.raises(DataError, match=r"the hypotheses, reference 2: different .* \(3 and 4\);"):
        bleu(HYPOTHESES[:3], [REFERENCES[0][:3], REFERENCES[1]])
    with pytest.raises(DataError, match="has no lines"):
        bleu([], [[]])
    check_counts([("a", 2), ("b", 2)])


LABELS = ("a", "b", "c", "never")


def examples():
    dice = random.Random(4)
    references = [dice.choice("aaabbc") for _ in range(200)]
    predicted = [right if dice.random() < 0.6 else dice.choice("abc") for right in references]
    return predicted, references


def test_scores_are_those_of_their_definitions():
    predicted, references = examples()
    scores = score_labels(predicted, references, LABELS)
    pairs = list(zip(predicted, references, strict=True))
    assert scores.n_examples == 200
    assert scores.accuracy == sum(p == r for p, r in pairs) / 200
    for number, label in enumerate("abc"):
        score = scores.labels[number]
        hits = [r == label for p, r in pairs if p == label]
        there = [p == label for p, r in pairs if r == label]
        assert score.precision == pytest.approx(sum(hits) / len(hits))
        assert score.recall == pytest.approx(sum(there) / len(there))
        harmonic = 2 / (1 / score.precision + 1 / score.recall)
        assert score.f1 == pytest.approx(harmonic)
        assert sum(scores.confusion[number]) == score.n_examples == len(there)
    # a label that neither occurs nor is predicted does not count
    assert scores.macro_f1 == pytest.approx(sum(score.f1 for score in scores.labels[:3]) / 3)
    assert scores.labels[3].f1 == 0.0


def test_a_label_that_is_only_predicted_counts():
    scores = score_labels(["a", "b"], ["a", "a"], ("a", "b"))
    assert scores.macro_f1 == pytest.approx((2 / 3 + 0.0) / 2)
    assert scores.confusion == ((1, 1), (0, 0))


def test_nothing_scores_nothing():
    scores = score_labels([], [], ("a", "b"))
    assert (scores.accuracy, scores.macro_f1) == (0.0, 0.0)


def test_different_numbers_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        score_labels(["a"], [], ("a",))


def test_every_choice_is_one_of_sacrebleus():
    assert set(get_args(Tokenization)) == BLEU.TOKENIZERS - {"spm"}  # an old name of flores101
    with pytest.raises(UsageError, match="--tokenize: must be one of none, zh, 13a"):
        check_tokenizer("made up")


@pytest.mark.parametrize("name", ["13a", "intl", "char", "zh", "none"])
def test_what_needs_nothing_is_there(name):
    check_tokenizer(name)


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("ja-mecab", "MeCab", "ja"),
        ("ko-mecab", "mecab_ko", "ko"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, name, missing, extra):
    find_spec = scores.find_spec
    monkeypatch.setattr(scores, "find_spec", lambda m: None if m == missing else find_spec(m))
    with pytest.raises(UsageError) as refused:
        check_tokenizer(name)
    assert str(refused.value) == (
        f"--tokenize: {name} needs the package {missing}; install it with {installing(extra)}"
    )


def test_a_model_that_cannot_be_downloaded_may_be_stored_by_hand(monkeypatch, tmp_path):
    def offline(*args, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(scores, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", offline)
    with pytest.raises(UsageError) as refused:
        check_tokenizer("flores200")
    path = tmp_path / "models" / "flores200sacrebleuspm"
    assert f"fetch https://tinyurl.com/flores200sacrebleuspm elsewhere and store it as {path}" in (
        str(refused.value)
    )
    path.write_bytes(b"a model")
    check_tokenizer("flores200")


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty folder where wmt20 belongs, on a machine without a network."""

    def offline(*args, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    monkeypatch.setattr(DATASETS["wmt20"], "_outdir", str(tmp_path))
    monkeypatch.setattr(DATASETS["wmt20"], "_rawdir", str(tmp_path / "raw"))
    return tmp_path


def test_files_that_are_there_are_found(folder):
    for field in DATASETS["wmt20"].fieldnames("en-de"):
        (folder / f"wmt20.en-de.{field}").write_text(f"{field}\n")
    source, references = files_of_test_set("wmt20", "en-de")
    assert source.read_text() == "src\n"
    assert [path.read_text() for path in references] == ["ref\n"]


def test_without_a_network_it_is_said_what_to_store_where(folder):
    with pytest.raises(UsageError) as refused:
        files_of_test_set("wmt20", "en-de")
    url = "https://data.statmt.org/wmt20/translation-task/test.tgz"
    path = folder / "raw" / "wmt20.test.tgz"
    message = str(refused.value)
    assert message.startswith("--test-set: wmt20 cannot be downloaded (")
    assert message.endswith(f"; store {url} as {path}, and unpack it there")


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("wmt2", "en-de", "--test-set: sacreBLEU has no wmt2; did you mean wmt24, wmt23 or wmt22?"),
        ("flor", "en-de", "--test-set: sacreBLEU has no flor; `sacrebleu --list` lists them"),
        ("wmt20", None, "--language-pair: wmt20 has cs-en, "),
        ("wmt20", "en-xx", "; found en-xx; name one of them"),
    ],
)
def test_unknown_names_are_refused(name, pair, message):
    with pytest.raises(UsageError) as refused:
        files_of_test_set(name, pair)
    assert message in str(refused.value)


SOURCES, RIGHT = ["eins", "zwei", "drei", "vier"], ["one", "two", "three", "four"]


class BestModelPublisher:
    """A model with the interface of COMET's: it finds the share of equal letters."""

    def __init__(self):
        self.asked = []

    def predict(self, samples, gpus, progress_bar, num_workers):
        self.asked += samples
        pairs = [(sample["mt"], sample["ref"]) for sample in samples]
        equal = [sum(a == b for a, b in zip(*pair, strict=False)) for pair in pairs]
        return SimpleNamespace(
            scores=[n / len(ref) for n, (_, ref) in zip(equal, pairs, strict=True)]
        )


@pytest.fixture
def judge(monkeypatch):
    model = BestModelPublisher()

    def download_model(name):
        if name != "Unbabel/wmt22-comet-da":
            raise KeyError(f"Model '{name}' not supported by COMET.")
        return "checkpoint"

    package = SimpleNamespace(
        load_from_checkpoint=lambda path: model, download_model=download_model
    )
    monkeypatch.setitem(sys.modules, "comet", package)
    monkeypatch.setattr(comet, "find_spec", lambda name: package)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.2.7")
    return model


def test_the_score_is_the_mean_over_sentences_and_is_tested_as_all_others(judge):
    metric = MeasuredMetric(Comet(SOURCES), [RIGHT])
    worse = ["one", "two", "xxxxx", "four"]
    (tested,) = paired_test([RIGHT, worse], [metric], TestSettings(samples=100))
    assert tested.name == "COMET"
    assert [score.value for score in tested.scores] == [100.0, 75.0]
    assert "|seed:12345|" in tested.signature
    assert tested.signature.endswith("|model:Unbabel/wmt22-comet-da|version:comet-2.2.7")
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
        f"{installing('comet')}, or omit comet"
    )
