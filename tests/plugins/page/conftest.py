"""The page's engine in node: models and jobs in, numbers out."""

import json
import shutil
import subprocess
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from tformer_cli.artifacts.weights_file import write_arrays
from tformer_cli.model.encoder_only import model_of


class Engine:
    """The engine's modules in a folder of their own, as node takes them, and models beside them."""

    def __init__(self, folder):
        self.folder = folder
        for path in files("tformer_cli.plugins.page").joinpath("engine").iterdir():
            if path.name.endswith(".js"):
                (folder / path.name).write_text(path.read_text("utf-8"), "utf-8")
        shutil.copy(Path(__file__).with_name("engine_job.js"), folder)
        (folder / "package.json").write_text('{"type": "module"}')

    def model(self, config, vocab_size=12):
        """Makes a model without a weight that has the value that a mistake would have."""
        torch.manual_seed(1)
        model = model_of(config, vocab_size).eval()
        with torch.no_grad():
            for weight in model.state_dict().values():
                weight.add_(0.2 * torch.randn_like(weight))
        return model

    def write(self, arrays):
        """Writes weights; returns their file."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.safetensors"
        with path.open("wb") as stream:
            write_arrays(stream, arrays, {})
        return str(path)

    def job(self, model, name, **parts):
        """Describes a job of a model of torch's."""
        arrays = {part: weight.numpy() for part, weight in model.state_dict().items()}
        weights = self.write(arrays)
        return {"job": name, "config": asdict(model.config), "weights": weights, **parts}

    def run(self, *jobs):
        """Computes jobs in one program."""
        path = self.folder / "jobs.json"
        path.write_text(json.dumps(jobs))
        command = ["node", self.folder / "engine_job.js", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("there is no node to run JavaScript with")
    return Engine(tmp_path_factory.mktemp("engine"))
