import sys
from enum import StrEnum

import pytest

from tformer_cli.cli.format_choice import check_ending, chosen_format
from tformer_cli.errors import UsageError


class SomeFormat(StrEnum):
    tty = "tty"
    jsonl = "jsonl"
    html = "html"


@pytest.mark.parametrize(
    ("given", "output", "expected"),
    [
        (None, "a.html", "html"),
        (None, "a.HTM", "html"),
        (None, "a.txt", "tty"),
        (None, "a.json", "jsonl"),
        (None, "a", "jsonl"),
        (None, "run-1.2", "jsonl"),
        (None, "/dev/null", "jsonl"),
        (None, "-", "jsonl"),
        ("html", "-", "html"),
        ("html", "a", "html"),
        ("html", "a.htm", "html"),
        ("jsonl", "a.part", "jsonl"),
    ],
)
def test_a_format_that_is_given_counts_then_the_name_then_who_reads(given, output, expected):
    wanted = None if given is None else SomeFormat(given)
    assert chosen_format(wanted, output, SomeFormat, SomeFormat.jsonl) == expected


def test_a_terminal_is_for_people(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert chosen_format(None, "-", SomeFormat, SomeFormat.jsonl) == "tty"
    assert chosen_format(None, "-", SomeFormat, SomeFormat.jsonl, "html") == "html"


@pytest.mark.parametrize(
    ("given", "output", "names"),
    [
        (None, "a.pdf", ".txt, .jsonl, .html"),
        (None, "a.svg", ".txt, .jsonl, .html"),
        (None, "a.jsonl.gz", ".txt, .jsonl, .html"),
        ("jsonl", "a.html", ".jsonl"),
        ("html", "dir/a.PDF", ".html"),
    ],
)
def test_a_name_that_promises_another_format_is_refused(given, output, names):
    wanted = None if given is None else SomeFormat(given)
    with pytest.raises(UsageError) as refused:
        chosen_format(wanted, output, SomeFormat, SomeFormat.jsonl)
    ending = output.rsplit(".")[-1].lower()
    assert str(refused.value) == (
        f"--output: {output} would not be a .{ending} file; what is written goes into {names}: "
        "name such a file"
    )


def test_links_may_be_in_a_file_of_text_and_not_in_a_table():
    check_ending("a.align", ["pharaoh"])
    check_ending("a.txt", ["pharaoh"])
    with pytest.raises(UsageError, match=r"would not be a \.tsv file"):
        check_ending("a.tsv", ["pharaoh"])
