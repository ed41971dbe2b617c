import math
import re
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from tests.commands import output_of
from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.model_directory import load_model_directory, store_alignment
from tformer_cli.cli.app import app
from tformer_cli.cli.commands.train import run_training
from tformer_cli.inspect.jobs.align import store_measured_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.plugins.built_in.quickstart import (
    FAMOUS,
    N_LABELED,
    PROMPTS,
    held_out_pairs,
    quickstart,
)
from tformer_cli.plugins.built_in.ratings import FAMOUS as RATED
from tformer_cli.plugins.built_in.ratings import write_ratings
from tformer_cli.plugins.instruments.jobs.ablate import inspect_ablate
from tformer_cli.recipe import load_recipe
from tformer_cli.wording import visible

EVERYDAY = {
    "I love pizza.": "J'adore la pizza.",
    "My name is Anna.": "Je m'appelle Anne.",
    "Let's go!": "Allons-y !",
}
NONSENSE = "blorf wug snark ziffle"
TINY = [
    "training.max_steps=4",
    "validation.every=4",
    "model.d_model=16",
    "model.n_heads=2",
    "model.d_ff=16",
]


@pytest.fixture
def tiny(tmp_path):
    """Makes a shipped recipe tiny."""

    def load_tiny(name, n_pairs, *overrides):
        pairs = [f"data.{split}.0.pairs={n_pairs}" for split in ("train", "valid")]
        cache = f"data.cache_directory={tmp_path / 'cache'}"
        return load_recipe(name, [*TINY, *pairs, cache, *overrides])

    return load_tiny


@pytest.fixture
def shown(monkeypatch):
    """Runs the command for a recipe, and returns what it prints."""

    def run(recipe, task, directory):
        monkeypatch.setattr("tformer_cli.recipe.load_recipe", lambda name, overrides: recipe)
        arguments = ["quickstart", "--task", task, "-o", str(directory), "-q", "--device", "cpu"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.stderr
        assert f"open {directory / 'heads.html'} in a browser" in done.stdout
        return done.stdout

    return run


def test_translation_is_trained_scored_and_shown_and_nothing_done_twice(tiny, tmp_path):
    run = tmp_path / "run"
    recipe = tiny(
        "quickstart", 200, "training.checkpoint_every=2", "training.precision=float32",
        "validation.max_sentences=3", "model.n_encoder_layers=1", "model.n_decoder_layers=1",
        "tokenizer.vocab_size=300", "decoding.beam_size=1", "decoding.max_length=5",
    )  # fmt: skip
    result = quickstart(run, recipe=recipe, device="cpu")
    assert not result.training.was_finished
    assert [source for source, *_ in result.samples[:2]] == list(FAMOUS)
    assert len(result.samples) == 5
    assert len(result.evaluation.hypotheses) == result.n_test
    assert {score.name for score in result.evaluation.scores} == {"BLEU", "chrF2", "TER"}
    page = result.page.read_text(encoding="utf-8")
    assert "animal" in page
    assert result.live_page == run / "page.html"
    assert 'id="weights"' in result.live_page.read_text(encoding="utf-8")
    weights = (run / "model.safetensors").read_bytes()
    stored = load_model_directory(run).info.alignment
    aligned = result.training.aligned
    assert (stored.heads, stored.convention) == (aligned.name, aligned.convention)

    again = quickstart(run, recipe=recipe, device="cpu")
    assert again.training.was_finished
    assert again.training.aligned is None
    assert again.evaluation.hypotheses == result.evaluation.hypotheses
    assert (run / "model.safetensors").read_bytes() == weights
    assert again.page.read_text(encoding="utf-8") == page


def test_a_run_on_strings_with_gold_links_stores_the_heads_that_follow_them(tmp_path, capsys):
    overrides = [setting for setting in TINY if "n_heads" not in setting]
    few = ["data.train.0.pairs=100", f"data.cache_directory={tmp_path / 'cache'}"]
    recipe = load_recipe("reverse", [*overrides, *few])
    run_training(recipe, tmp_path / "run", device="cpu", fresh=False, quiet=False)
    stored = load_model_directory(tmp_path / "run").info.alignment
    message = capsys.readouterr().err
    assert f"{stored.heads} aligns words best of all heads and layers" in message
    # what is stored already, here by a user, stays
    store_alignment(tmp_path / "run", AlignmentInfo(heads="cross.0", convention="shift"))
    assert store_measured_heads(recipe, tmp_path / "run") is None


def test_a_language_model_is_scored_and_writes(tiny, shown, tmp_path):
    run = tmp_path / "run"
    recipe = tiny("sentences", 200, "tokenizer.vocab_size=300", "decoding.max_length=8")
    result = quickstart(run, recipe=recipe, device="cpu")
    assert [prompt for prompt, _ in result.samples] == list(PROMPTS)
    scores = result.evaluation.scores
    assert scores.bits_per_byte == pytest.approx(
        scores.loss / math.log(2) * scores.n_tokens / scores.n_bytes
    )
    assert scores.loss < math.log(300) + 0.5
    assert all(text in result.page.read_text() for text in FAMOUS)
    text = shown(recipe, "language-model", run)
    assert f"{scores.bits_per_byte:.3f} bits per byte" in text
    # a terminal is shown control characters, never sent them
    shown_samples = [visible("".join(sample)) for sample in result.samples]
    assert all(sample in text.replace("\n", "") for sample in shown_samples)
    assert f"tformer generate {run}" in text


def test_a_classifier_rates_what_training_never_shows(tiny, shown, tmp_path):
    run, recipe = tmp_path / "run", tiny("ratings", 100)
    result = quickstart(run, recipe=recipe, device="cpu")
    assert result.samples[0][0] == RATED
    assert result.evaluation.scores.n_examples == result.n_test == 20
    assert RATED in result.page.read_text()
    text = shown(recipe, "rating", run)
    assert RATED in text
    assert f"accuracy {100 * result.evaluation.scores.accuracy:.1f}" in text
    assert f"tformer classify {run}" in text


def test_a_model_of_images_shows_its_heads_over_pictures(tiny, shown, tmp_path, monkeypatch):
    run, recipe = tmp_path / "run", tiny("shapes", 100)
    result = quickstart(run, recipe=recipe, device="cpu")
    assert result.samples[0][0] == "shapes:test:1#0"
    assert result.evaluation.scores.n_examples == result.n_test == 20
    # the picture, rollout, ALTI and two heads in each of three layers
    assert len(re.findall("<figure>", result.page.read_text())) == N_LABELED * (3 + 6)
    text = shown(recipe, "image", run)
    assert f"accuracy {100 * result.evaluation.scores.accuracy:.1f}" in text
    assert f"tformer inspect-image {run} shapes:test:1#0" in text
    # what is said to come next needs no package that `pip install .` leaves out
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.chdir(tmp_path)
    output_of("make-corpus", "shapes", "--task", "image", "--pairs", "20")
    (classify,) = re.findall(r"  tformer (classify .*)", text)
    assert output_of(*classify.split()).startswith("0\tshapes/test.images.idx#0\t")


@pytest.mark.long
def test_the_famous_sentences_are_in_the_test_set_of_the_shipped_recipe():
    pairs = {pair.source: pair.target for pair in held_out_pairs(load_recipe("quickstart"))[:10]}
    assert pairs[FAMOUS[0]].endswith("qu'il était trop fatigué.")
    assert pairs[FAMOUS[1]].endswith("qu'elle était trop large.")


@pytest.mark.long
def test_the_shipped_recipe_keeps_its_promise(tmp_path):
    """Some minutes on two cores."""
    result = quickstart(tmp_path / "run", recipe=load_recipe("quickstart"), device="cpu")
    (bleu,) = (score.value for score in result.evaluation.scores if score.name == "BLEU")
    assert bleu >= 95.0
    # what is shown first follows the words: 8.9 and 10.5 with seeds 1 and 2, the diagonal 30
    assert result.training.aligned.counts.error_rate < 0.15
    for (source, translation, reference), text in zip(result.samples[:2], FAMOUS, strict=True):
        assert (source, translation) == (text, reference)
    doubts = {}
    for line in [*EVERYDAY, NONSENSE]:
        out = output_of(
            "translate", str(result.page.parent), "--doubt", "--format", "tsv", "-q", line
        )
        _, source, translation, _, doubt = out.splitlines()[0].split("\t")
        doubts[source] = translation, float(doubt)
    assert {source: doubts[source][0] for source in EVERYDAY} == EVERYDAY
    assert max(doubts[source][1] for source in EVERYDAY) < 0.5 < doubts[NONSENSE][1]


@pytest.mark.long
def test_the_shipped_recipe_tells_shapes_apart(tmp_path):
    """About two minutes of processor time."""
    result = quickstart(tmp_path / "run", recipe=load_recipe("shapes"), device="cpu")
    assert result.evaluation.scores.accuracy >= 0.92


@pytest.mark.long
def test_the_shipped_recipe_rates_all_unseen_combinations_right(tmp_path):
    """A minute or two on two cores."""
    result = quickstart(tmp_path / "run", recipe=load_recipe("ratings"), device="cpu")
    assert result.evaluation.scores.accuracy == 1.0
    assert result.samples[0] == (RATED, "3", "3")
    check_that_the_words_that_decide_are_found(tmp_path / "run", tmp_path / "corpus")


def check_that_the_words_that_decide_are_found(run, corpus):
    """The flow leads to the gold words, and one head reads the negation."""
    write_ratings(corpus)
    texts = (corpus / "test.txt").read_text().splitlines()[:300]
    gold = [
        {int(word) for word in line.split()}
        for line in (corpus / "test.gold").read_text().splitlines()
    ]
    n_led, n_negated, n_read = 0, 0, Counter()
    for text, words, flow in zip(texts, gold, inspect_view("flow", run, texts), strict=False):
        n_led += int(flow.flows["alti"].source[0].argmax()) in words
        negations = [place for place, word in enumerate(text.split()) if word in ("not", "never")]
        n_negated += len(negations)
        for reading in flow.readings:
            n_read[reading.head] += reading.first in negations
    assert n_led > 0.7 * len(texts)
    assert max(n_read.values()) > 0.7 * n_negated
    (famous,) = inspect_view("flow", run, [RATED])
    shares = famous.flows["alti"].source[0]
    largest = {famous.sentence.source_pieces[place] for place in shares.topk(2).indices.tolist()}
    assert largest == {"▁not", "▁terrible"}
    ((head, _),) = n_read.most_common(1)
    (reading,) = (reading for reading in famous.readings if reading.head == head)
    assert famous.sentence.source_pieces[reading.first] == "▁not"
    # the model needs that head
    ablated = inspect_ablate(run, texts, [(corpus / "test.label").read_text().splitlines()[:300]])
    (effect,) = (effect for effect in ablated.effects if effect.head == head)
    (accuracy,) = effect.scores
    assert (accuracy.name, accuracy.baseline) == ("accuracy", 100.0)
    assert accuracy.high < 0.0
