"""Groups of options, values as they are typed, and results in files."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.cli.command import CheckedCommand
from tformer_cli.cli.options import (
    REQUIRED,
    PathRole,
    option,
    option_field,
    path_roles,
    takes_groups,
)
from tformer_cli.cli.streams import results
from tformer_cli.errors import UsageError

seen = []


@dataclass(frozen=True, kw_only=True)
class Size:
    width: int = option_field(REQUIRED, "Columns.", min=1)
    height: Annotated[int, option("Rows.", "-y")] = 2
    file: str | None = option_field(None, "Where to draw.", role="reads_file")
    area: int = 0


@dataclass(frozen=True)
class Nothing:
    """Settings without an option."""


@takes_groups
def draw(
    name: str, *, size: Size, no: Nothing, loud: bool = option_field(False, "Loudly.")
) -> None:
    """Draw."""
    seen.append((name, size, loud))


def run(*arguments):
    app = typer.Typer()
    app.command(cls=CheckedCommand)(draw)
    seen.clear()
    return CliRunner().invoke(app, [*arguments])


def test_a_command_is_given_its_group():
    assert run("a", "--width", "3", "-y", "4", "--loud").exit_code == 0
    assert seen == [("a", Size(width=3, height=4), True)]


def test_a_field_without_a_default_is_required():
    result = run("a")
    assert result.exit_code == 2
    assert "--width" in result.output
    assert not seen


def test_a_field_is_checked_as_an_option_is():
    assert run("a", "--width", "0").exit_code == 2


def test_paths_in_a_group_have_their_roles():
    assert path_roles(draw) == {"file": PathRole.reads_file}
    assert isinstance(run("a", "--width", "3", "--file", "").exception, Exception)
    assert not seen


WHOLE = 'error: --beam-size: must be a whole number, but is "{}"'
LIMIT = 'error: --beam-size: must be at least 1, but is "{}"'
NUMBER = 'error: --length-penalty: must be a number, but is "{}"'


def error_of(option, value):
    done = CliRunner().invoke(app, ["translate", "nothing", "a", option, value])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize("value", ["5", "5.0", "5.00", " 5", "0005", "1_0"])
def test_whole_numbers_may_be_spelled_as_scripts_spell_them(value):
    assert error_of("--beam-size", value).startswith("error: nothing: no such")  # the model, next


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        *[("--beam-size", value, WHOLE) for value in ("", "x", "5.5", "5e0", "nan", "inf", "0x5")],
        *[("--beam-size", value, LIMIT) for value in ("0", "-1", "-3.0")],
        *[("--length-penalty", value, NUMBER) for value in ("", "x", "1,5")],
    ],
)
def test_what_is_wrong_with_a_number_is_said_in_one_line(option, value, says):
    error = error_of(option, value)
    assert error.startswith(says.format(value))
    assert error.count("\n") == 1


@pytest.mark.parametrize("value", ["nan", "-1", "-inf"])
def test_limits_hold_for_what_is_no_ordinary_number(value):
    assert error_of("--length-penalty", value).startswith("error: --length-penalty: ")


def test_a_long_text_is_cut():
    assert len(error_of("--beam-size", "9" * 5000)) < 200


@pytest.mark.parametrize(
    ("name", "program"), [("a.gz", "gzip"), ("b.de.xz", "xz"), ("c.bz2", "bzip2")]
)
def test_a_name_of_a_compressed_file_is_refused(tmp_path, name, program):
    with pytest.raises(UsageError, match=rf"add \| {program} > FILE"), results(tmp_path / name):
        pytest.fail("it was opened")
    assert not list(tmp_path.iterdir())


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.gz.txt"

    def fail_halfway():
        with results(path) as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert not list(tmp_path.iterdir())
    with results(path) as stream:
        stream.write(b"whole")
    assert path.read_bytes() == b"whole"
