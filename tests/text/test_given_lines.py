import pytest

from tformer_cli.text.lines import given_lines

WRONG = [
    ("one line", "is one str; give a list of str, a line each"),
    (b"one line", "is one bytes; give a list of str, a line each"),
    (None, "is None; give a list of str, a line each"),
    (7, "is int; give a list of str, a line each"),
]


@pytest.mark.parametrize(("lines", "message"), WRONG)
def test_other_arguments_than_several_strings_are_errors_at_once(lines, message):
    with pytest.raises(TypeError, match=f"^sources: {message}$"):
        given_lines(lines, "sources")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"b", r"^lines\[1\]: is bytes, not str; decode it$"),
        (None, r"^lines\[1\]: is None, not str; give a str$"),
        (1, r"^lines\[1\]: is int, not str; give a str$"),
        (["b"], r"^lines\[1\]: is list, not str; give a str$"),
    ],
)
def test_something_else_among_lines_is_named(line, message):
    found = given_lines(iter(["a", line]))
    assert next(found) == "a"
    with pytest.raises(TypeError, match=message):
        next(found)
