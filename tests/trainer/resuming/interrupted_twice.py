"""A training that two interrupts end while its first checkpoint is being written.

Arguments: a directory, and where the write is at the second: "held" by the disk, or "busy".
"""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Event

import torch

from tests.recipes import tiny_translator
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.cli.app import main as program
from tformer_cli.trainer.processes.signals import StopRequest
from tformer_cli.trainer.resuming import checkpoints

directory, moment = Path(sys.argv[1]), sys.argv[2]
noted, receive = Event(), StopRequest.receive


def note(*arguments: object) -> None:
    noted.set()
    receive(*arguments)


def write_forever(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    for _ in range(2):
        noted.clear()
        os.kill(os.getpid(), signal.SIGINT)
        noted.wait()
    while moment == "held":
        time.sleep(60.0)
    while True:
        save_tensors(path, {**tensors, "more": torch.zeros(20_000_000)})


StopRequest.receive, checkpoints.save_tensors = note, write_forever
recipe = directory / "tiny.toml"
training = {"max_steps": 4, "checkpoint_every": 2, "average": "none"}
recipe.write_text(tiny_translator(directory, training=training)().to_toml())
sys.argv[1:] = ["train", str(recipe), "-o", str(directory / "run"), "--device", "cpu", "-q"]
program()
