"""The programs on a device that is simulated: what a GPU would refuse, and where it would idle."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch.utils.backend_registration as registration

from tests.tiny_recipe import TINY_MODEL
from tformer_cli.training.speed import Pace

pytestmark = pytest.mark.skipif(
    not hasattr(registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch simulates no device",
)
PROGRAM = Path(__file__).parent / "simulated_device.py"
RECIPE = (
    """
[data]
source_language = "en"
target_language = "fr"
train = [{ built_in = "train", pairs = 100 }]
valid = [{ built_in = "valid", pairs = 20 }]
"""
    + TINY_MODEL
    + """\
[training]
precision = "float32"
tokens_per_batch = 400
max_steps = 12
warmup_steps = 4
report_every = 6
checkpoint_every = 6
[validation]
every = 12
max_sentences = 2
[decoding]
max_length = 8
"""
)
LINES = "Is the boy calm?\nThe glove was old.\nA bear.\n"
REPORTS = 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs `tformer` on the device; returns its output and where the host waited."""
    directory = tmp_path_factory.mktemp("elsewhere")
    (directory / "recipe.toml").write_text(RECIPE)
    (directory / "lines").write_text(LINES)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[1])}

    def ran(*arguments, device="cuda"):
        done = subprocess.run(
            [sys.executable, PROGRAM, "waits.json", *arguments, "--device", device],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        waits = json.loads((directory / "waits.json").read_text())
        return done.stdout, {(what, where): n for what, where, n in waits}

    return ran


@pytest.fixture(scope="module")
def trained(run):
    """Where the host waited while a model was trained."""
    return run("train", "recipe.toml", "-o", "run")[1]


NUMBER = r"-?\d+\.\d+"


def words_and_numbers(text):
    """What was printed besides fractions, and these: two paths compute them."""
    return re.sub(NUMBER, "#", text), [float(number) for number in re.findall(NUMBER, text)]


def in_folder(waits, *folders):
    return {key: n for key, n in waits.items() if key[1].startswith(folders)}


def without_pace(waits):
    """How often the host waited at each line outside `Pace`, which measures for a second: here that
    is the whole run."""
    lines, first = inspect.getsourcelines(Pace)
    of_pace = {f"training/speed.py:{first + i}" for i in range(len(lines))}
    return [n for (_, where), n in waits.items() if where not in of_pace]


def test_a_training_waits_for_the_device_at_reports_alone(trained):
    waits = in_folder(trained, "training/", "model/", "fast/native/")
    assert waits  # the losses that are reported
    assert max(without_pace(waits)) <= REPORTS, waits


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"training.optimizer": "muon", "training.average": "ema", "training.accumulate": "2"},
        {
            "training.r_drop": "1.0",
            "model.positions": "learned",
            "model.tied_embeddings": "none",
        },
        {
            "training.label_smoothing": "0.1",
            "model.output_bias": "true",
            "model.decoder_cell": "ssru",
        },
    ],
)
def test_so_do_other_trainings(run, trained, changes):
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    waits = run("train", "recipe.toml", "-o", "-".join(changes), *sets)[1]
    # what is looked at: losses at reports, and the average where it is judged
    within = in_folder(waits, "training/", "model/", "fast/native/")
    assert max(without_pace(within)) <= REPORTS + 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--beam-size", "1"),
        ("--beam-size", "3", "--n-best", "3", "--format", "jsonl", "--alignments", "pharaoh"),
        ("--beam-size", "4", "--diversity-groups", "2"),
        ("--sampling", "--top-k", "4", "--seed", "2"),
        ("--no-repeat-ngram", "2", "--coverage-penalty", "0.2", "--ban", "an"),
    ],
)
def test_translations_are_those_of_the_cpu(run, trained, options):
    arguments = ("translate", "run", "-i", "lines", "--max-length", "6", *options)
    ours, our_numbers = words_and_numbers(run(*arguments)[0])
    theirs, their_numbers = words_and_numbers(run(*arguments, device="cpu")[0])
    assert ours == theirs
    assert our_numbers == pytest.approx(their_numbers, rel=1e-5, abs=1e-4)


def test_no_step_of_a_continuous_translation_waits(run, trained):
    """But for copies of what is done and found to the host, asynchronous ones on a GPU."""
    arguments = ("translate", "run", "-i", "lines", "--max-length", "6", "--beam-size", "3")
    translations, waits = run(*arguments, "--engine", "continuous")
    assert translations == run(*arguments, device="cpu")[0]
    waits = in_folder(waits, "decoding/", "fast/continuous/", "model/")
    assert {what for what, _ in waits} == {"copy_"}
    assert len(waits) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "run", "--source", "lines", "--target-file", "lines"),
        ("evaluate", "run", "--source", "lines", "--reference", "lines"),
        ("inspect-heads", "run", "--corpus", "-i", "lines", "--target-file", "lines"),
        ("inspect-align", "run", "--source", "lines", "--target-file", "lines"),
    ],
)
def test_other_commands_compute_there(run, trained, arguments):
    assert run(*arguments)[0]
