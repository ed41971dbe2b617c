"""Pictures as PNG."""

import sys

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.figures import new_figure, png_bytes


def test_the_same_figure_gives_the_same_bytes_and_keeps_its_description():
    pytest.importorskip("matplotlib")
    first, second, plain = (
        png_bytes(new_figure(1.0, 1.0), *text) for text in (["Zoë"], ["Zoë"], [])
    )
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert (b"Description" in first, b"Description" in plain) == (True, False)


def test_without_matplotlib_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[png\]'"):
        new_figure(1.0, 1.0)
