"""What is wrong with a word is said before anything heavy is imported."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.cli.test_command import arguments, commands
from tformer_cli.cli.app import app
from tformer_cli.errors import UsageError

WRONG = {
    "inspect-heads M a --heads nonsense": '--heads: "nonsense" is not KIND',
    "inspect-heads M a --heads @width>2": '"@width>2" names no metric',
    "inspect-heads M a --heads enc.9.0": '"enc.9.0" matches no head; the heads are enc.0-1.0-1',
    "inspect-report M a --heads bad -o r.html": '--heads: "bad" is not KIND',
    "inspect-step M a --token 1 --head zzz": '--head: "zzz" is not KIND',
    "inspect-ablate M -i in --reference in --heads cross.9": '"cross.9" matches no head',
    "inspect-ablate M -i in --reference in --write-pruned d --prune x": '--prune: "x" is not KIND',
    "translate M a --heads enc.9": '--heads: "enc.9" matches no head',
    "evaluate M --source in --reference in --heads enc.9": '--heads: "enc.9" matches no head',
    "translate M a --device gpu": '--device: must be auto, cpu, cuda or cuda:N, but is "gpu"',
    "train quickstart --device gpu -o new": "--device: must be",
    "quickstart --device cuda:x -o new": "--device: must be",
    "train quickstart --from nosuch -o new": "nosuch: no such directory; name a model directory\n",
    "train quickstart -o in": "in: is a file; name a directory",
    "quickstart -o in": "in: is a file; name a directory",
    "export M -o new": "--format ctranslate2, the default: the package is not installed; pip inst",
    "translate M a --engine ctranslate2": "is gone; write --engine tformer, which needs no export",
    "translate M a --engine continuous": "--engine continuous: is gone; write --engine torch\n",
    "benchmark M -i in --engine torch --engine continuous": "is gone; write --engine torch\n",
    "export M --format int8 -o full": "--output: full is already there; name a new directory",
    "inspect-heads M a --format png -o a.png": "--format png: needs resvg",
    "plot M --format png -o a.png": "--format png: needs resvg",
    "inspect-ablate M -i in --reference in --write-pruned full --keep 1": (
        "--write-pruned: full is already there; name a new directory"
    ),
    "inspect-ablate M -i nosuch --reference in": "nosuch: no such file; check the path",
    "inspect-diff M M -i nosuch": "nosuch: no such file; check the path",
    "inspect-heads M -i nosuch": "nosuch: no such file; check the path",
    "inspect-image M a.png": "is a translation model; use `tformer translate`",
    "classify M a": "is a translation model; use `tformer translate`",
    "embed M a": "is a translation model; use `tformer translate`",
    "translate nosuch a": "nosuch: no such directory; name a model directory\n",
    "train my-recipe": "my-recipe: no such recipe; did you mean my-recipe.toml?",
}
PROGRAM = """
import json, sys
sys.modules["ctranslate2"] = sys.modules["resvg_py"] = None  # as if they were not installed
from typer.testing import CliRunner
from tformer_cli.cli.app import app
HEAVY = ("torch", "datasets", "transformers", "pyarrow")
said = []
for line in json.load(sys.stdin):
    result = CliRunner().invoke(app, line)
    loaded = [name for name in HEAVY if name in sys.modules]
    said.append([result.exit_code, result.stderr, loaded])
json.dump(said, sys.stdout)
"""


def test_wrong_words_import_nothing_heavy(model, tmp_path):
    """One process for all: what an earlier line imports is seen in all that follow."""
    (tmp_path / "full").mkdir()
    for name in ("in", "full/a", "my-recipe.toml"):
        (tmp_path / name).write_text("a\n")
    lines = [[str(model) if word == "M" else word for word in one.split()] for one in WRONG]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    for line, (status, stderr, loaded) in zip(WRONG, json.loads(ended.stdout), strict=True):
        assert WRONG[line] in stderr, (line, stderr)
        assert (status, stderr.count("\n"), loaded) == (2, 1, []), (line, stderr)
    assert {one.name for one in tmp_path.iterdir()} == {"in", "full", "my-recipe.toml"}


DEVICES = [
    words
    for words, command in commands().items()
    if any(one.name == "device" for one in command.params)
]


def test_every_command_checks_its_device_first():
    assert len(DEVICES) > 20
    for words in DEVICES:
        command = commands()[words]
        (device,) = (one for one in command.params if one.name == "device")
        given = arguments(command, (device, "gpu"))
        with pytest.raises(UsageError, match=r'^--device: must be auto, .* but is "gpu"$'):
            command.invoke(command.make_context("tformer", given))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("translate M a --gpu", "did you mean --device cuda?"),
        ("translate M a --batch-size 8", "did you mean --batch-tokens?"),
        ("train r.toml --batch-size 8", "did you mean --set training.tokens_per_batch=N?"),
        ("train r.toml --lr 1", "did you mean --set training.learning_rate=X?"),
        ("train --config r.toml", "did you mean RECIPE without an option?"),
        ("translate --model M a", "did you mean MODEL without an option?"),
        ("translate M a --lang de", "did you mean --source-language or --target-language?"),
        ("inspect-heads M a --layer 2", "did you mean --heads?"),
        ("evaluate M --src a --reference b", "did you mean --source?"),
        ("inspect-heads M a --tgt b", "did you mean --target or --target-file?"),
        ("translate M --source a", "did you mean --input?"),
        ("evaluate M --input a --reference b", "did you mean --source?"),
        ("score M -i a --nbest b", "did you mean --n-best-file?"),
        ("score M -i a --target b", "did you mean --target-file?"),
        ("inspect-heads M a --head cross", "did you mean --heads?"),
        ("inspect-align M --symmetrise union", "did you mean --symmetrize?"),
        ("generate M a --topk 3", "did you mean --top-k?"),
        ("generate M a --top 3", "did you mean --top-k?"),
        ("translate M a --verbose", "did you mean to omit --quiet?"),
        ("recipes list", "did you mean `tformer recipes`?"),
    ],
)
def test_words_of_other_tools_and_earlier_versions_are_known(line, hint):
    result = CliRunner().invoke(app, line.split(), prog_name="tformer")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"; {hint}\n"), result.stderr


def test_inspect_image_has_only_options_that_apply():
    options = {name for one in commands()["inspect-image",].params for name in one.opts}
    kept = {"--heads", "--source", "--format", "--output", "--device", "--threads", "--adapter"}
    gone = {"--target", "--target-file", "--beam-size", "--length-penalty", "--seed"}
    assert kept <= options
    assert not options & (gone | {"--source-language", "--target-language"})
