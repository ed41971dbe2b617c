import ctypes
import platform
from types import SimpleNamespace

import pytest

from tformer_cli.model import allocator
from tformer_cli.model.allocator import keep_freed_pages


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_the_allocator_of_linux_is_told_once_to_keep_what_is_freed(monkeypatch, system):
    told = {}
    library = SimpleNamespace(mallopt=told.__setitem__)
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    allocator.keep_freed_pages.__wrapped__()
    assert told == ({-4: 0, -1: 2**31 - 1, -2: 64 << 20} if system == "Linux" else {})


def test_a_library_without_that_setting_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    keep_freed_pages.__wrapped__()
