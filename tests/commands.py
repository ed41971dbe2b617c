"""Runs commands of tformer in this process, and says what must have come of them."""

import json
import re
from decimal import Decimal
from functools import partial

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app


def run(*arguments, stdin=None):
    """Runs a command; returns its status, stdout and stderr."""
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def output_of(*arguments, stdin=None):
    """Runs a command that must succeed; returns what it wrote."""
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def lines_of(*arguments, stdin=None):
    """As `output_of`; returns its lines: U+2028 and a carriage return end none."""
    return output_of(*arguments, stdin=stdin).split("\n")[:-1]


def record_of(*arguments, stdin=None):
    """As `output_of`; returns the one JSON value written."""
    return json.loads(output_of(*arguments, stdin=stdin))


def records_of(*arguments, stdin=None):
    """As `lines_of`; returns the JSON value of each."""
    return [json.loads(line) for line in lines_of(*arguments, stdin=stdin)]


def refused(*arguments, says="", stdin=None):
    """Runs a command that must write nothing and end with status 2 and one line of error."""
    done = run(*arguments, stdin=stdin)
    assert (done.exit_code, done.stdout) == (2, ""), (done.stderr, done.exception)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert says in done.stderr, done.stderr
    return done.stderr


def under(word, *names):
    """Returns functions of this module, by name, whose commands begin with a word."""
    return [partial(globals()[name], word) for name in names]


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def assert_printed_alike(ours, theirs, **close):
    """Two paths have computed the same: what they print differs in the last digits of fractions.

    A number is as close as `close` says, or as its last printed digit lets it be seen.
    """
    assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
    for number, other in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
        last_digit = 10.0 ** min(Decimal(part).as_tuple().exponent for part in (number, other))
        seen = {**close, "abs": max(close["abs"], 1.001 * last_digit)}
        assert float(number) == pytest.approx(float(other), **seen), (number, other)
