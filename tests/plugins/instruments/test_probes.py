"""Probes of planted labels and of noise, beside their optimum worked by hand, and by commands."""

import json

import numpy as np
import pytest
import torch

from tests.commands import output_of, records_of
from tformer_cli.errors import DataError
from tformer_cli.inspect.jobs.reader import BUFFER_LINES
from tformer_cli.plugins.instruments.jobs.probe import inspect_probe
from tformer_cli.plugins.instruments.probes import (
    L2,
    Labeled,
    TokenRow,
    control_labels,
    fit_probe,
    interval,
    probe,
    tasks_of,
    whiten_states,
)
from tformer_cli.plugins.instruments.views.probe import VIEW, ProbeOptions

N, K, D = 1500, 4, 12
WORDS = ["the", "a", "old", "green", "dog", "house", "street", "man", "woman", "runs", "saw"]


def task(labels, types=None):
    return Labeled(
        name="label",
        meaning="",
        kind="enc",
        rows=np.arange(N),
        sentences=np.arange(N) // 6,
        types=np.arange(N) % 50 if types is None else types,
        labels=labels,
    )


@pytest.fixture(scope="module")
def planted():
    random = np.random.default_rng(3)
    labels = random.integers(K, size=N)
    noise = torch.from_numpy(random.normal(size=(N, D)))
    states = noise + 20 * torch.nn.functional.one_hot(torch.from_numpy(labels), D)
    return probe([noise, states], task(labels), seed=1)


def test_a_planted_label_is_found_and_noise_gives_chance(planted):
    noise, states = planted.layers
    assert (planted.n_labels, planted.n_fitted, planted.n_held_out) == (K, 1200, 300)
    assert states.accuracy == 1
    assert states.accuracy_interval == (1, 1)
    assert abs(noise.accuracy - 1 / K) < 0.07
    assert noise.accuracy_interval[0] < 1 / K < noise.accuracy_interval[1]
    # What a probe cannot read there it cannot learn by heart either
    assert abs(noise.selectivity) < 0.1
    assert noise.selectivity_interval[0] < 0 < noise.selectivity_interval[1]
    assert abs(states.selectivity - (1 - states.control)) < 1e-12
    assert states.control < 0.5
    assert (noise.layer, states.layer) == (-1, 0)


def test_what_is_known_by_the_word_has_no_selectivity():
    # Both tasks are of words, and the states are words: the probe knows both by heart
    random = np.random.default_rng(4)
    types = random.integers(D, size=N)
    states = torch.nn.functional.one_hot(torch.from_numpy(types), D).double()
    layer = probe([states], task(types % 3, types), seed=1).layers[0]
    assert layer.accuracy == layer.control == 1
    assert layer.selectivity == 0


@pytest.mark.parametrize(("n", "width", "n_labels"), [(200, 5, 3), (1600, 256, 32)])
def test_a_probe_ends_at_its_only_minimum(n, width, n_labels):
    random = np.random.default_rng(5)
    y = random.integers(n_labels, size=n)
    # As in a model, some labels can be read off and some cannot, and directions differ in size
    x = random.normal(size=(n, width)) * np.linspace(0.05, 3, width)
    states = torch.from_numpy(x + random.normal(size=(n_labels, width))[y])
    white, labels = whiten_states(states, states), torch.from_numpy(y)
    fitted = fit_probe(white, labels, n_labels)
    x, weight, bias = (tensor.numpy() for tensor in (white, *fitted))
    logits = x @ weight.T + bias
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    slope = shares - np.eye(n_labels)[y]  # of the mean cross-entropy, by the formula
    assert np.abs(slope.T @ x / n + L2 * weight).max() < 1e-5
    assert np.abs(slope.mean(axis=0)).max() < 1e-5
    assert all(map(torch.equal, fitted, fit_probe(white, labels, n_labels)))


def test_whitened_states_have_a_unit_covariance():
    x = torch.randn(400, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = x @ torch.diag(torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=torch.float64)) + 7
    white = whiten_states(x, x)
    assert white.mean(dim=0).abs().max() < 1e-10
    torch.testing.assert_close(white.T @ white / 400, torch.eye(6).double(), atol=0.03, rtol=0)


def test_a_control_label_is_of_a_type():
    types, labels = np.arange(1000) % 100, np.array([0] * 900 + [1] * 100)
    drawn = control_labels(types, labels, seed=1)
    assert (drawn.reshape(10, 100) == drawn[:100]).all()
    assert 0.02 < drawn[:100].mean() < 0.25  # a tenth of the types
    assert (drawn != control_labels(types, labels, seed=2)).any()


def test_intervals_resample_sentences():
    values = np.repeat([0.0, 1.0], 50)
    assert interval(np.ones(100), np.arange(100), 1) == (1, 1)
    few, many = (interval(values, np.arange(100) // n, 1) for n in (10, 1))
    assert few[1] - few[0] > 1.5 * (many[1] - many[0])


def test_properties_of_tokens():
    tokens = [
        TokenRow(sentence=0, position=0, id=7, previous=-1, next=8, word="dogs", label="N"),
        TokenRow(sentence=0, position=1, id=8, previous=7, next=9, word="understanding"),
        TokenRow(sentence=4, position=20, id=9, previous=8, next=-1, label="V"),
        TokenRow(sentence=4, position=3, id=7, previous=8, next=8, word="cat"),
        TokenRow(sentence=1, position=30, id=9, previous=8, next=-1, label="D"),
    ]
    tasks = {row.name: row for row in tasks_of("enc", tokens, ["position", "previous", "next",
                                                               "length", "label"])}  # fmt: skip
    assert {name: row.rows.tolist() for name, row in tasks.items()} == {
        "position": [0, 1, 3], "previous": [1, 2, 3, 4], "next": [0, 1, 3], "length": [0, 1, 3],
        "label": [0, 2, 4],
    }  # fmt: skip
    assert tasks["previous"].types.tolist() == [8, 9, 7, 9]
    assert tasks["length"].labels.tolist() == [1, 2, 0]
    assert tasks["label"].sentences.tolist() == [0, 4, 1]
    assert not [*tasks_of("dec", tokens[:1], ["position", "label"])]  # one label says nothing


def sentences(n=40):
    random = np.random.default_rng(6)
    return [" ".join(random.choice(WORDS, size=5)).capitalize() + "." for _ in range(n)]


def tags(lines):
    return [" ".join("N" if word.strip(".").lower() in WORDS[4:9] else "O" for word in line.split())
            for line in lines]  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["translate", "language_model", "memory", "classifier", "tagger", "masked"]
)
def test_every_kind_is_probed(zoo, kind):
    lines = sentences()
    settings = ProbeOptions(property=("previous", "label"), max_tokens=600)
    report = inspect_probe(zoo[kind], [*lines, *lines[:5], " "], settings=settings,
                           labels=[*tags(lines), *tags(lines[:5]), ""])  # fmt: skip
    of_decoders = {"translate": ["enc", "dec"], "language_model": ["dec"], "memory": ["dec"]}
    stacks = of_decoders.get(kind, ["enc"])
    assert [result.kind for result in report.results if result.name == "previous"] == stacks
    # This classifier reads nothing of words that it does not know: where is their label?
    has_labels = kind != "classifier"
    labeled = [result.kind for result in report.results if result.name == "label"]
    assert labeled == stacks[:has_labels]
    assert report.n_sentences <= 40
    assert bool(report.skipped) is not has_labels
    for result in report.results:
        assert [layer.layer for layer in result.layers] == [-1, *range(len(result.layers) - 1)]
        for layer in result.layers:
            assert 0 <= layer.accuracy <= 1
            low, high = layer.accuracy_interval
            assert low <= layer.accuracy <= high
    assert json.loads(json.dumps([*VIEW.lines(report, settings)]))


def test_a_word_has_its_label_where_it_was_read(zoo):
    lines = [*sentences(), "a"]
    settings = ProbeOptions(property=("label",))
    n_labeled = {}
    for kind in ("language_model", "memory", "tagger"):  # a text of `memory` has no end
        (result,) = inspect_probe(zoo[kind], lines, labels=tags(lines), settings=settings).results
        n_labeled[kind] = result.n_fitted + result.n_held_out
    assert n_labeled == dict.fromkeys(n_labeled, 201)  # once a word


def test_the_command_says_what_the_function_says(zoo, tmp_path):
    lines = sentences()
    text, labels = tmp_path / "text", tmp_path / "tags"
    text.write_text("\n".join(lines))
    labels.write_text("\n".join(tags(lines)))
    command = ["inspect-probe", zoo["tagger"], "-i", text, "--labels", labels, "-q", "--property"]
    shown = output_of(*command, "label", "--format", "text")
    assert "40 different sentences, every fifth held out" in shown
    assert "the draw of random labels is not in them" in " ".join(shown.split())
    (first, *rest) = records_of(*command, "label")
    assert (first["layer"], first["property"], first["kind"]) == (-1, "label", "enc")
    assert len(rest) == 1 + max(layer["layer"] for layer in rest)
    assert f"{100 * first['accuracy']:.1f}" in shown
    assert first["selectivity"] == pytest.approx(first["accuracy"] - first["control"], abs=1e-5)


def test_no_side_of_a_held_out_sentence_was_fitted_to(zoo):
    lines = sentences(24)
    others = [line.replace(".", "!") for line in lines]
    settings = ProbeOptions(property=("position",))

    def probe_texts(sources, targets):
        return inspect_probe(zoo["translate"], sources, targets=targets, settings=settings)

    assert probe_texts(lines, others).n_sentences == 24
    # The same sources with other targets, and the same targets of other sources
    assert probe_texts([*lines, *lines], [*lines, *others]).n_sentences == 24
    assert probe_texts([*lines, *others], [*lines, *lines]).n_sentences == 24


def test_no_more_is_read_than_is_probed(zoo):
    def endless():
        for number in range(BUFFER_LINES + 1):
            yield f"A dog {number}."
        pytest.fail("reads on behind the most tokens")

    settings = ProbeOptions(property=("position",), max_tokens=400)
    report = inspect_probe(zoo["language_model"], endless(), settings=settings)
    assert report.n_sentences < BUFFER_LINES


def test_what_cannot_be_probed_is_refused(zoo):
    lines = sentences()
    for labels, says in (
        (tags(lines)[1:], "--labels: has fewer lines"),
        ([*tags(lines), "O"], "--labels: has more lines"),
        (["O", *tags(lines)[1:]], "--labels: line 1 has 1 label for 5 words"),
    ):
        with pytest.raises(DataError, match=says):
            inspect_probe(zoo["tagger"], lines, labels=labels)
    with pytest.raises(DataError, match="1 different sentence that the model takes"):
        inspect_probe(zoo["tagger"], lines[:1] * 30)
    with pytest.raises(DataError, match="no token has any of these"):
        inspect_probe(zoo["tagger"], lines, settings=ProbeOptions(property=("label",)))
