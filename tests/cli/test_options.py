"""Commands whose options come in groups."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tformer_cli.cli.command import CheckedCommand
from tformer_cli.cli.options import (
    REQUIRED,
    PathRole,
    option,
    option_field,
    path_roles,
    takes_groups,
)

seen = []


@dataclass(frozen=True, kw_only=True)
class Size:
    width: int = option_field(REQUIRED, "Columns.", min=1)
    height: Annotated[int, option("Rows.", "-y")] = 2
    file: str | None = option_field(None, "Where to draw.", role="reads_file")
    area: int = 0


@takes_groups
def draw(name: str, *, size: Size, loud: bool = option_field(False, "Loudly.")) -> None:
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
