"""BibTeX of commands, and of every method that has a paper."""

import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from tests.cli.test_app import run_here
from tests.commands import output_of
from tformer_cli.artifacts.config_file import TASKS
from tformer_cli.cli.citations import TFORMER, USES, read_entries
from tformer_cli.cli.known_commands import known_commands
from tformer_cli.inspect.weighting import WeightingName
from tformer_cli.metrics.choices import MetricName, TestName
from tformer_cli.model.methods import ACTIVATIONS, IS_BEFORE, NORMS, POSITIONS, SIMILARITIES
from tformer_cli.text.config import Algorithm
from tformer_cli.trainer.config import Optimizer
from tformer_cli.version import __version__

CFF = Path(__file__).parents[2] / "CITATION.cff"
METHODS = {
    "model.positions={}": POSITIONS,
    "model.similarity={}": SIMILARITIES,
    "model.norm_kind={}": NORMS,
    "model.norm={}": IS_BEFORE,
    "model.activation={}": ACTIVATIONS,
    "task.kind={}": TASKS,
    "tokenizer.algorithm={}": get_args(Algorithm),
    "training.optimizer={}": get_args(Optimizer),
    "compare metric={}": list(MetricName),
    "compare test={}": get_args(TestName),
    "inspect-heads weights={}": get_args(WeightingName),
    "{}": [name for name, _ in known_commands() if name.startswith("inspect-")],
}


def keys_of(text):
    return set(re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE))


def cite(*words):
    done = run_here(*words)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith(TFORMER)
    return keys_of(done.stdout) - {"tformer"}


@pytest.mark.parametrize("facts", METHODS)
def test_every_method_has_a_row(facts):
    missing = [name for name in METHODS[facts] if facts.format(name) not in USES]
    assert missing == [], "add rows to USES of cli/citations.py; () where there is no paper"


def test_rows_and_entries_belong_together():
    entries = read_entries()
    used = {key for keys in USES.values() for key in keys}
    assert used == set(entries) == keys_of("\n".join(entries.values()))


@pytest.mark.parametrize(("key", "entry"), read_entries().items(), ids=lambda text: text[:20])
def test_an_entry_says_who_what_when_and_where(key, entry):
    values = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    assert entry.count("{") == entry.count("}")
    assert {"author", "title", "year", "url"} <= set(values)
    assert values["year"] in key
    # the paper's number stands in its address: two that differ are a slip
    number = values.get("eprint") or values.get("doi", "").rpartition("/v1/")[2]
    assert number in values["url"] or "doi" in values
    assert re.fullmatch(r"https://[!-~]+", values["url"])
    assert entry.isascii()


@pytest.mark.parametrize(
    ("words", "keys", "others"),
    [
        (
            ["--cite", "compare", "--reference", "ref", "a", "b"],
            {"papineni2002bleu", "popovic2015chrf", "snover2006study", "koehn2004statistical"},
            {"rei2020comet", "vaswani2017attention"},
        ),
        (
            ["compare", "--reference", "ref", "a", "b", "--metric", "comet,chrf", "--cite"],
            {"rei2020comet", "popovic2015chrf", "post2018call"},
            {"papineni2002bleu"},
        ),
        (
            ["--cite", "train", "quickstart", "--set", "model.positions=alibi"],
            {"vaswani2017attention", "press2022train", "jordan2024muon", "szegedy2016rethinking"},
            {"su2021roformer"},
        ),
        (
            ["--cite", "train", "quickstart", "--set", "training.label_smoothing=0"],
            {"vaswani2017attention"},
            {"szegedy2016rethinking", "press2022train"},
        ),
        (
            ["--cite", "train", "quickstart", "--seeds", "1,2"],
            {"papineni2002bleu", "popovic2015chrf", "post2018call", "koehn2004statistical"},
            {"welch1947generalization", "snover2006study"},
        ),
        (
            ["--cite", "train", "brackets", "--seeds", "1,2"],
            {"koehn2004statistical"},
            {"papineni2002bleu", "snover2006study"},
        ),
        (["--cite", "train", "brackets"], set(), {"koehn2004statistical"}),
        (
            ["--cite", "study", "table-3"],
            {
                *("vaswani2017attention", "kingma2015adam", "gehring2017convolutional"),
                *("papineni2002bleu", "popovic2015chrf", "post2018call", "koehn2004statistical"),
                "welch1947generalization",
            },
            {"snover2006study", "dosovitskiy2021image"},
        ),
        (
            ["study", "table-3", "--variants", "base", "--seeds", "1", "--cite"],
            {"vaswani2017attention", "koehn2004statistical"},
            {"welch1947generalization", "gehring2017convolutional"},
        ),
        (["--cite", "tokenize", "train", "a", "-o", "b"], {"sennrich2016neural"}, set()),
        (["--cite", "guide"], set(), {"vaswani2017attention"}),
    ],
)
def test_a_command_line_cites_what_it_uses_and_does_nothing_else(
    words, keys, others, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = cite(*words)
    assert keys <= found
    assert not others & found
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_cited_by_its_architecture(model, tmp_path):
    found = cite("translate", model, "a", "--risk", "chrf", "-o", tmp_path / "out", "--cite")
    assert {"vaswani2017attention", "kumar2004minimum", "popovic2015chrf"} <= found
    assert "post2018call" not in found
    assert "abnar2020quantifying" in cite("inspect", "heads", model, "--weights=rollout", "--cite")
    assert not (tmp_path / "out").exists()


def test_behind_a_double_dash_it_is_a_text(model):
    done = run_here("translate", model, "-q", "--", "--cite")
    assert (done.exit_code, "@" in done.stdout) == (0, False)


def test_the_citation_file_names_what_bibtex_names():
    title = re.search(r'^title: "(.*)"$', CFF.read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert re.sub(r"[{}]", "", TFORMER).count(title) == 1
    assert __version__ in TFORMER
    assert f"version: {__version__}" in CFF.read_text(encoding="utf-8").splitlines()
    assert "name: The tformer authors" in CFF.read_text(encoding="utf-8")


def test_runs_of_several_seeds_are_one_system(zoo, tmp_path):
    for seed in (1, 2):
        shutil.copytree(zoo["translate"], tmp_path / f"seed-{seed}")
    text = output_of("--cite", "compare", "--reference", "ref", f"a={tmp_path}")
    assert "@article{welch1947generalization," in text
    assert "@inproceedings{vaswani2017attention," in text
