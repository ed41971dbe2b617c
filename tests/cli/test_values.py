"""Values of options as they are typed."""

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app

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
        *[("--beam-size", one, WHOLE) for one in ("", "x", "5.5", "5e0", "nan", "inf", "0x5")],
        *[("--beam-size", one, LIMIT) for one in ("0", "-1", "-3.0")],
        *[("--length-penalty", one, NUMBER) for one in ("", "x", "1,5")],
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
