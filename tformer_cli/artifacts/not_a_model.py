"""Recognition of other files and directories named as a model, each with advice."""

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.wording import did_you_mean, suggestions

PARTS = ("config.json", "tokenizer.json", "model.safetensors")
"""Files of a model directory."""
FOREIGN_FILES = {
    "model.bin": "CTranslate2",
    "*.npz": "Marian",
    "*.npz.yml": "Marian",
    "*.decoder.yml": "Marian",
    "dict.*.txt": "fairseq",
    "checkpoint*.pt": "fairseq",
    "*step_*.pt": "OpenNMT",
    "params.best": "Sockeye",
    "params.0*": "Sockeye",
    "*.ckpt": "JoeyNMT",
    "pytorch_model*.bin": "Hugging Face",
    "tf_model.h5": "Hugging Face",
    "generation_config.json": "Hugging Face",
    "*.gguf": "llama.cpp",
    "*.onnx": "ONNX",
    "*.pt": "PyTorch",
    "*.pth": "PyTorch",
    "*.bin": "PyTorch",
}
"""Files that identify the owner of a model, the most specific ones first."""
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
NOT_READ = (
    "`tformer help import` names the models of other tools that can be imported; name one of them, "
    "or a tformer model directory"
)
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
"""Files of tokenizers."""
OF_TOKENIZERS = (
    "name a directory that has the model's settings and weights, too, or train one with it "
    "(tokenizer.path in a recipe)"
)
MOST_LOOKED_AT, MOST_NAMED = 1000, 4


def not_a_model(path: Path, config: Mapping[str, Any] | None = None) -> ArtifactError:
    """Describes a path that is not a tformer model directory.

    Args:
        path: path that was named.
        config: its config.json, if it has one.
    """
    try:
        return ArtifactError(f"{path}: {_problem(path, config)}")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return ArtifactError(f"{path}: cannot be read ({reason}); name a model directory")


def _problem(path: Path, config: Mapping[str, Any] | None) -> str:
    if not path.exists():
        return _missing(path)
    if not path.is_dir():
        return _file(path)
    # From the surest sign to the weakest: a foreign config.json, foreign files, our own files
    if config is not None and {"model_type", "architectures"} & config.keys():
        kind = config.get("model_type")
        named = (
            f" ({kind})" if isinstance(kind, str) and kind.replace("-", "_").isidentifier() else ""
        )
        return f"is a Hugging Face model{named}; {NOT_READ}"
    owner = _owner(path)
    if owner:
        return f"is a model of {owner}; {NOT_READ}"
    if config is not None:
        return "its config.json has no format_version; name a tformer model directory"
    if (path / "recipe.toml").is_file():
        return (
            "is a run without a model yet; resume it, or wait for its first checkpoint "
            f"(`tformer train RECIPE -o {path}`)"
        )
    # A checkpoint or a file's folder inside a run was named: the run is meant
    above = next((parent for parent in path.resolve().parents if _is_model(parent)), None)
    if above is not None:
        return f"is a part of a model or run; name its directory {above}"
    # A folder of models, such as runs/: a few of their names are the best advice
    models = [inner for inner in islice(path.iterdir(), MOST_LOOKED_AT) if _is_model(inner)]
    if models:
        shown = ", ".join(map(str, sorted(models)[:MOST_NAMED]))
        more = f" and {len(models) - MOST_NAMED} more" if len(models) > MOST_NAMED else ""
        return f"is not a model but holds some; name one of them: {shown}{more}"
    if any((path / name).is_file() for name in TOKENIZERS):
        return f"holds a tokenizer without a model; {OF_TOKENIZERS}"
    if any(path.glob("*.safetensors")):
        return "holds weights without config.json, which says of what model; put it beside them"
    return "config.json is missing; name a tformer model directory"


def _missing(path: Path) -> str:
    text = str(path)
    if any(letter.isspace() for letter in text) and not path.parent.name:
        return "no such directory; MODEL comes first, then the text"
    if path.parent.is_dir():
        beside = [inner.name for inner in islice(path.parent.iterdir(), MOST_LOOKED_AT)]
        near = [
            str(path.parent / name)
            for name in suggestions(path.name, sorted(beside))
            if _is_model(path.parent / name)
        ]
        if near:
            return f"no such directory; {did_you_mean(near)}"
    elif HUB_NAME.fullmatch(text):
        return (
            "no such directory; a model of the Hugging Face hub becomes one by "
            f"`tformer import {text} -o DIR`"
        )
    return "no such directory; name a model directory"


def _file(path: Path) -> str:
    if path.name in PARTS and all((path.parent / part).is_file() for part in PARTS):
        return f"is a file of a model; name its directory {path.parent}"
    if path.name in TOKENIZERS:
        return f"is a tokenizer without a model; {OF_TOKENIZERS}"
    if path.name == "config.json":
        return "is the settings of a model alone; put its weights beside it, and name the directory"
    if path.suffix == ".safetensors":
        return (
            "is weights alone; put config.json of their model beside them, and name the directory"
        )
    owner = _owner_of(path)
    if owner:
        return f"is a model of {owner}; {NOT_READ}"
    return "is a file; name a model directory"


def _owner(directory: Path) -> str:
    """Owner of a model by the files in its directory; empty: unknown."""
    files = list(islice(directory.iterdir(), MOST_LOOKED_AT))
    for pattern, owner in FOREIGN_FILES.items():
        if any(file.match(pattern) for file in files):
            return owner
    return ""


def _owner_of(file: Path) -> str:
    """Owner of a single file, by its name or by the files beside it."""
    owner = next((whose for glob, whose in FOREIGN_FILES.items() if file.match(glob)), "")
    return _owner(file.parent) if owner == "PyTorch" else owner


def _is_model(path: Path) -> bool:
    try:
        return all((path / part).is_file() for part in PARTS)
    except OSError:
        return False
