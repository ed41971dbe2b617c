import ctypes
import platform

import pytest

from tformer_cli.training import freed_pages
from tformer_cli.training.freed_pages import FreedPages, resident_pages


@pytest.fixture
def watched(monkeypatch):
    """A process of any size; to give back half of it takes 0.1 s, to use a page again 0.4 ms."""
    process = {"size": 1000, "now": 50.0, "trims": 0}

    def trim(_rest):
        process["trims"] += 1
        process["now"] += 0.1
        process["size"] //= 2
        return 1

    monkeypatch.setattr(freed_pages, "resident_pages", lambda: process["size"])
    monkeypatch.setattr(freed_pages.time, "monotonic", lambda: process["now"])
    monkeypatch.setattr(freed_pages, "seconds_per_page", lambda: 0.4e-3)
    process["pages"] = FreedPages()
    process["pages"]._trim = trim
    return process


def test_a_process_that_does_not_grow_is_left_alone(watched):
    assert not any(watched["pages"].after_step() for _ in range(5))
    watched["size"] = 1999
    assert not watched["pages"].after_step()
    assert watched["trims"] == 0


def test_one_that_grows_gives_memory_back_within_its_share_of_time(watched):
    pages = watched["pages"]
    trims = []
    for step in range(2000):
        watched["now"] += 0.5
        watched["size"] = 1000 if not trims or trims[-1] == step - 1 else 2000
        if step in (0, 1):
            watched["size"] = 1000 * (step + 1)
        if pages.after_step():
            trims.append(step)
    assert trims[0] == 1
    spent = watched["trims"] * (0.1 + 1000 * 0.4e-3)
    assert 0.8 * freed_pages.MOST_OF_TIME < spent / watched["now"] < freed_pages.MOST_OF_TIME * 1.1


def test_growth_counts_from_the_first_step_after_the_last_time(watched):
    pages = watched["pages"]
    pages.after_step()
    watched["size"] = 2000
    assert pages.after_step()
    watched["now"], watched["size"] = watched["now"] + 1000.0, 1300
    assert not pages.after_step()  # 1300 is what is in use by now
    watched["size"] = 2599
    assert not pages.after_step()
    watched["size"] = 2600
    assert pages.after_step()


def test_other_systems_keep_what_they_have(monkeypatch):
    monkeypatch.setattr(freed_pages.platform, "system", lambda: "Darwin")
    assert not FreedPages().after_step()


@pytest.mark.skipif(platform.system() == "Windows", reason="has no private mappings")
def test_a_page_costs_more_than_nothing():
    assert 0.0 < freed_pages.seconds_per_page() < 0.1


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_the_size_of_the_process_is_that_of_the_system():
    before = resident_pages()
    room = ctypes.create_string_buffer(b"x" * (1 << 26))
    assert resident_pages() - before > 10_000
    del room
