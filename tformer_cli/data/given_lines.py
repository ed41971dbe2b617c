"""Lines given by a Python program: several strings.

A single string is a sequence of strings to Python, of its letters, and would be taken as such.
"""

from collections.abc import Iterable, Iterator


def given_lines(lines: Iterable[str], name: str = "lines") -> Iterator[str]:
    """Returns the lines that were given."""
    check_lines(lines, name)
    return (checked_line(line, number, name) for number, line in enumerate(lines))


def check_lines(lines: object, name: str = "lines") -> None:
    """Checks that lines are several objects, each of which may be a string."""
    if isinstance(lines, str | bytes | bytearray):
        raise TypeError(f"{name}: is one {_kind(lines)}; give a list of str, a line each")
    if not isinstance(lines, Iterable):
        raise TypeError(f"{name}: is {_kind(lines)}; give a list of str, a line each")


def checked_line(line: object, number: int, name: str = "lines") -> str:
    """Returns a line that is a string."""
    if not isinstance(line, str):
        what_to_do = "decode it" if isinstance(line, bytes | bytearray) else "give a str"
        raise TypeError(f"{name}[{number}]: is {_kind(line)}, not str; {what_to_do}")
    return line


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
