"""Lines that a Python program hands over: strings, several of them.

A single string is a sequence of strings to Python, of its letters, and would be taken as such.
"""

from collections.abc import Iterable, Iterator


def given_lines(lines: Iterable[str], name: str = "lines") -> Iterator[str]:
    """Returns the lines that were given.

    Args:
        lines: what a caller gives as several strings.
        name: what the caller calls it.

    Raises:
        TypeError: if it is one string or no iterable at all; while it is read, if something in it
            is no string.
    """
    check_lines(lines, name)
    return (checked_line(line, number, name) for number, line in enumerate(lines))


def check_lines(lines: object, name: str = "lines") -> None:
    """Makes sure that lines are several things of which each may be one.

    Raises:
        TypeError: if they are not.
    """
    if isinstance(lines, str | bytes | bytearray):
        raise TypeError(f"{name}: is one {_kind(lines)}; give a list of str, a line each")
    if not isinstance(lines, Iterable):
        raise TypeError(f"{name}: is {_kind(lines)}; give a list of str, a line each")


def checked_line(line: object, number: int, name: str = "lines") -> str:
    """Returns a line that is a string.

    Raises:
        TypeError: if it is something else; it names its place, from 0.
    """
    if not isinstance(line, str):
        what_to_do = "decode it" if isinstance(line, bytes | bytearray) else "give a str"
        raise TypeError(f"{name}[{number}]: is {_kind(line)}, not str; {what_to_do}")
    return line


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
