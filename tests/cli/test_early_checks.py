"""What is wrong with a word is said before anything heavy is imported."""

import pytest
from typer.testing import CliRunner

from tests.cli.test_command import arguments, commands
from tformer_cli.cli.app import app
from tformer_cli.errors import UsageError

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
