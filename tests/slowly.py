"""Parametrizations of which the default suite tries some values, and `pytest -m slow` the others.

For values that go through the same code: they differ in data, and fail together.
"""

import pytest


def slowly(*values):
    """Marks values of a parameter as slow; tuples are values of several."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
