"""The page's engine and client in node: models and jobs in, numbers and answers out."""

import json
import shutil
import subprocess
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from tformer_cli.artifacts.weights_file import write_arrays
from tformer_cli.inspect.frame import live_modules
from tformer_cli.model.encoder_only import model_of
from tformer_cli.plugins.page.export import export_page, read_scripts


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


class Client:
    """An exported page's client in node."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "engine").mkdir()
        for name, text in live_modules(read_scripts()).items():
            for place in (folder, folder / "engine"):  # each imports of its own folder
                (place / name).write_text(text, "utf-8")
        shutil.copy(Path(__file__).with_name("page_job.js"), folder)
        (folder / "package.json").write_text('{"type": "module"}')

    def run(self, model, requests):
        """Answers requests by the page of a model, in float32."""
        export_page(model, self.folder / "page.html", precision="float32")
        jobs = self.folder / "jobs.json"
        jobs.write_text(json.dumps(requests))
        command = ["node", self.folder / "page_job.js", self.folder / "page.html", jobs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("there is no node to run JavaScript with")
    return Client(tmp_path_factory.mktemp("client"))
