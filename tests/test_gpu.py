"""The commands on a GPU: what they print there is what they print on the CPU."""

import json
import re
import subprocess
import sys
import time

import pytest

from tests.commands import assert_printed_alike
from tests.zoo import RECIPES, recipe_of, tformer

pytestmark = pytest.mark.gpu
CLOSE = {"rel": 2e-4, "abs": 5e-4}
"""Of numbers in float32: sums are made in another order. Three printed digits show less."""


def on(device, *arguments, stdin=None):
    return tformer(*arguments, "-q", "--device", device, stdin=stdin)


def assert_equal_to_the_cpu(*arguments):
    """What a command prints on both devices is the same, but for the last digits."""
    ours, theirs = (on(device, *arguments).stdout for device in ("cuda", "cpu"))
    assert ours
    assert_printed_alike(ours, theirs, **CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        "--beam-size 1",
        "--beam-size 3 --n-best 3 --format jsonl --alignments pharaoh",
        "--beam-size 4 --diversity-groups 2",
        "--no-repeat-ngram 2 --coverage-penalty 0.2",
        "--batch-tokens 60",
    ],
)
@pytest.mark.parametrize("model", ["translate", "variant", "opus"])
def test_translations(zoo, model, options):
    assert_equal_to_the_cpu("translate", zoo[model], "-i", zoo.inputs / "text.en", *options.split())


@pytest.mark.parametrize(
    "command",
    [
        "score {translate} --source {in}/text.en --target-file {in}/text.fr",
        "evaluate {translate} --source {in}/text.en --reference {in}/text.fr",
        "generate {gpt} The --max-length 8",
        "generate {llama} The --max-length 8",
        "generate {memory} The --max-length 8",
        "score {language_model} --source {in}/text.en",
        "classify {classifier} -i {in}/text.en --format jsonl",
        "classify {images} {in}/photos/ant/0.png --format jsonl",
        "tag {tagger} -i {in}/text.en --format jsonl",
        "fill {masked} <mask>~dog. --format jsonl",
        "embed {sentences} -i {in}/text.en --format jsonl",
        "inspect-heads {translate} The~old~house. --format jsonl",
        "inspect-heads {variant} The~old~house. --format jsonl --weights norm",
        "inspect-heads {memory} The~old~house. --format jsonl",
        "inspect-heads {classifier} A~dog. --format jsonl --weights rollout",
        "inspect-heads {images} {in}/photos/ant/0.png --format jsonl",
        "inspect-heads {translate} --corpus -i {in}/text.en --format jsonl",
        "inspect-step {translate} A~dog. --token 1 --head enc.1.0 --format json",
        "inspect-logits {translate} A~dog. --lens --format jsonl",
        "inspect-flow {translate} A~dog. --format jsonl",
        "inspect-flow {classifier} A~dog. --format jsonl",
        "inspect-align {translate} --source {in}/text.en --target-file {in}/text.fr",
        "inspect-ablate {translate} --source {in}/text.en --reference {in}/text.fr --format jsonl",
        "inspect-diff {translate} {twin} A~dog. --format jsonl",
    ],
)
def test_other_commands(zoo, command):
    names = {name: zoo[name] for name in re.findall(r"{(\w+)}", command) if name != "in"}
    words = [part.replace("~", " ") for part in command.split()]
    assert_equal_to_the_cpu(*(part.format(**names, **{"in": zoo.inputs}) for part in words))


def losses(run):
    text = (run / "metrics.jsonl").read_text()
    entries = map(json.loads, text[: text.rfind("\n") + 1].splitlines())  # one may be half written
    return [entry["loss"] for entry in entries if entry["kind"] == "report"]


def train_losses(device, recipe, run, n_steps, *options):
    every = ("--max-steps", n_steps, "--set", "training.report_every=1")
    on(device, "train", recipe, "-o", run, *every, *options)
    return losses(run)


@pytest.mark.parametrize("name", RECIPES)
def test_trainings_start_alike(zoo, tmp_path, name):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of(name, zoo.inputs))
    cpu, cuda = (
        train_losses(device, recipe, tmp_path / device, 6, "--set", "model.dropout=0")
        for device in ("cpu", "cuda")
    )
    assert len(cpu) == 6
    assert cuda == pytest.approx(cpu, rel=1e-3)


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of torch's own, when it compiles
@pytest.mark.parametrize(
    "options",
    ["--precision bfloat16", "--set training.compile=true", "--set training.optimizer=muon"],
)
def test_other_trainings_lower_the_loss(zoo, tmp_path, options):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe_of("translate", zoo.inputs))
    fast = ("--set", "training.warmup_steps=1", "--set", "training.learning_rate=1e-2")
    values = train_losses("cuda", recipe, tmp_path / "run", 30, *fast, *options.split())
    assert values[-1] < 0.9 * values[0]


def test_a_training_resumes(zoo, tmp_path):
    """The run is ended by a signal, goes on, and ends where one that was not ended does."""
    recipe = tmp_path / "recipe.toml"
    text = recipe_of("translate", zoo.inputs).replace("max_steps = 1", "max_steps = 120")
    recipe.write_text(
        text.replace("[validation]", "report_every = 1\ncheckpoint_every = 20\n[validation]")
    )
    on("cuda", "train", recipe, "-o", tmp_path / "whole")
    parts = tmp_path / "parts"
    command = [sys.executable, "-m", "tformer_cli", "train", recipe, "-o", parts]
    with subprocess.Popen([*command, "--device", "cuda"], stderr=subprocess.DEVNULL) as ended:
        while not (parts / "metrics.jsonl").exists() or len(losses(parts)) < 25:
            assert ended.poll() is None
            time.sleep(0.01)
        ended.terminate()
    assert len(losses(parts)) < 120
    on("cuda", "train", recipe, "-o", parts)
    assert losses(parts) == pytest.approx(losses(tmp_path / "whole"), rel=0.02)
