"""The programs on a device that is simulated: what a GPU would refuse, and where it would idle."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.utils.backend_registration as registration

import tformer_cli
from tests.commands import assert_printed_alike
from tests.recipes import tiny_translator
from tformer_cli.trainer.speed import Pace

pytestmark = pytest.mark.skipif(
    not hasattr(registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch simulates no device",
)
PROGRAM = Path(__file__).parent / "simulated_device.py"
LINES = "Is the boy calm?\nThe glove was old.\nA bear.\n"
REPORTS = 2
MOST_STEPS = 8
"""Six tokens, their end, and a step too many."""
WAITS_OF_A_BATCH = 9
"""The table of positions, limits of length and settings of rules."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs commands in a process with the device; of each, its output and where it waited."""
    directory = tmp_path_factory.mktemp("elsewhere")
    make = tiny_translator(
        directory, 100,
        data={"source_language": "en", "target_language": "fr"},
        training={"max_steps": 8, "warmup_steps": 4, "report_every": 4, "checkpoint_every": 4},
        validation={"every": 8, "metric": "bleu"},
    )  # fmt: skip
    (directory / "recipe.toml").write_text(make().to_toml())
    (directory / "lines").write_text(LINES)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[1])}

    def ran(*commands):
        done = subprocess.run(
            [sys.executable, PROGRAM],
            input=json.dumps(commands),
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs = []
        for status, out, err, waits in json.loads(done.stdout):
            assert status == 0, err
            outputs.append((out, {(what, where): n for what, where, n in waits}))
        return outputs

    return ran


def there(*arguments):
    return (*arguments, "--device", "cuda")


def here(*arguments):
    return (*arguments, "--device", "cpu")


@pytest.fixture(scope="module")
def ended(run):
    """A training."""
    return run(there("train", "recipe.toml", "-o", "run"))


def in_folder(waits, *folders):
    return {key: n for key, n in waits.items() if key[1].startswith(folders)}


def without_pace(waits):
    """How often the host waited at each line outside `Pace`, which measures for a second: here that
    is the whole run."""
    lines, first = inspect.getsourcelines(Pace)
    file = Path(inspect.getsourcefile(Pace)).relative_to(Path(tformer_cli.__file__).parent)
    of_pace = {f"{file.as_posix()}:{first + i}" for i in range(len(lines))}
    return [n for (_, where), n in waits.items() if where not in of_pace]


def test_a_training_waits_for_the_device_at_reports_alone(ended):
    waits = in_folder(ended[0][1], "trainer/", "model/", "fast/native/")
    assert waits  # the losses that are reported
    assert max(without_pace(waits)) <= REPORTS, waits


@pytest.mark.long
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
def test_so_do_other_trainings(run, changes):
    sets = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    ((_, waits),) = run(there("train", "recipe.toml", "-o", "-".join(changes), *sets))
    # what is looked at: losses at reports, and the average where it is judged
    within = in_folder(waits, "trainer/", "model/", "fast/native/")
    assert max(without_pace(within)) <= REPORTS + 2


@pytest.mark.long
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
def test_translations_are_those_of_the_cpu(run, ended, options):
    arguments = ("translate", "run", "-i", "lines", "--max-length", "6", *options)
    (ours, waits), (theirs, _) = run(there(*arguments), here(*arguments))
    assert_printed_alike(ours, theirs, rel=1e-5, abs=1e-4)
    # once a step; the lines make a single batch
    of_steps = in_folder(waits, "search/fetch.py")
    assert 0 < sum(of_steps.values()) <= MOST_STEPS
    of_scores = in_folder(waits, "search/scoring.py")  # of the forced pass that coverage needs
    others = in_folder(waits, "search/", "model/").items() - {*of_steps.items(), *of_scores.items()}
    assert sum(n for _, n in others) <= WAITS_OF_A_BATCH, others


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ("score", "run", "--source", "lines", "--target-file", "lines"),
        ("evaluate", "run", "--source", "lines", "--reference", "lines"),
        ("inspect-heads", "run", "--corpus", "-i", "lines", "--target-file", "lines"),
        ("inspect-align", "run", "--source", "lines", "--target-file", "lines"),
    ],
)
def test_other_commands_compute_there(run, ended, arguments):
    ((text, _),) = run(there(*arguments))
    assert text
