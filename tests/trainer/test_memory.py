import mmap
import platform

import pytest
import torch

from tformer_cli.errors import TformerError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.batching import collate
from tformer_cli.trainer import memory
from tformer_cli.trainer.gradients import add_gradients
from tformer_cli.trainer.memory import FreedPages, GradientsInMemory, halves, resident_pages
from tformer_cli.trainer.report_interval import ReportInterval

SETTINGS = {"label_smoothing": 0.1, "precision": "float32"}
BATCHES = [
    collate([[5, 6, 7], [8, 9], [10], [11, 12, 13, 14]], [[6], [7, 8, 9], [11, 12], [13]]),
    collate([[5, 6], [8, 9, 4]], [[6, 7], [7, 8, 9]]),
]


def model():
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1, dropout=0.0
    )
    return Transformer(config, 20)


def limit_rows(monkeypatch, most_rows):
    """Lets batches of more rows fail after they have added to the gradients; counts the tries."""
    tries = []

    def adding(trained, batches, window, **settings):
        tries.append([batch.n_sentences for batch in batches])
        add_gradients(trained, batches, window, **settings)
        if max(tries[-1]) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(memory, "add_gradients", adding)
    return tries


@pytest.mark.parametrize("most_rows", [1, 2, 3])
def test_a_split_batch_has_the_gradient_of_the_whole(monkeypatch, most_rows):
    whole, expected = model(), ReportInterval(0.0)
    add_gradients(whole, BATCHES, expected, **SETTINGS)
    tries = limit_rows(monkeypatch, most_rows)
    split, window = model(), ReportInterval(0.0)
    n_parts = GradientsInMemory().add(split, BATCHES, window, **SETTINGS)
    assert n_parts == len(tries[-1]) > 2
    assert max(tries[-1]) <= most_rows
    for ours, theirs in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=0.0, atol=1e-6)
    assert window.n_target_tokens == expected.n_target_tokens
    assert window.mean_loss == pytest.approx(expected.mean_loss, rel=1e-6)


def test_batches_as_large_as_one_that_failed_are_split_at_once(monkeypatch):
    tries = limit_rows(monkeypatch, 2)
    gradients, trained = GradientsInMemory(), model()
    gradients.add(trained, BATCHES, ReportInterval(0.0), **SETTINGS)
    assert tries == [[4, 2], [2, 2, 2]]
    trained.zero_grad()
    gradients.add(trained, BATCHES, ReportInterval(0.0), **SETTINGS)
    assert tries[2:] == [[2, 2, 2]]


def test_a_pair_that_does_not_fit_is_an_error_and_other_errors_pass(monkeypatch):
    limit_rows(monkeypatch, 0)
    with pytest.raises(TformerError, match=r"a sentence pair of .* does not fit in memory"):
        GradientsInMemory().add(model(), BATCHES, ReportInterval(0.0), **SETTINGS)
    monkeypatch.setattr(memory, "add_gradients", lambda *a, **k: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        GradientsInMemory().add(model(), BATCHES, ReportInterval(0.0), **SETTINGS)


def test_halves_have_all_rows_once():
    first, second = halves(BATCHES[0])
    for name in ("source", "source_mask", "target_input", "target_output"):
        joined = torch.cat([getattr(first, name), getattr(second, name)])
        assert torch.equal(joined, getattr(BATCHES[0], name))


@pytest.fixture
def watched(monkeypatch):
    """A process of any size; to give back half of it takes 0.1 s, to use a page again 0.4 ms."""
    process = {"size": 1000, "now": 50.0, "trims": 0}

    def trim(_rest):
        process["trims"] += 1
        process["now"] += 0.1
        process["size"] //= 2
        return 1

    monkeypatch.setattr(memory, "resident_pages", lambda: process["size"])
    monkeypatch.setattr(memory.time, "monotonic", lambda: process["now"])
    monkeypatch.setattr(memory, "seconds_per_page", lambda: 0.4e-3)
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
    assert 0.8 * memory.MOST_OF_TIME < spent / watched["now"] < memory.MOST_OF_TIME * 1.1


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
    monkeypatch.setattr(memory.platform, "system", lambda: "Darwin")
    assert not FreedPages().after_step()


@pytest.mark.skipif(platform.system() == "Windows", reason="has no private mappings")
def test_a_page_costs_more_than_nothing():
    assert 0.0 < memory.seconds_per_page() < 0.1


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc")
def test_the_size_of_the_process_is_that_of_the_system():
    before = resident_pages()
    # Memory of the allocator's may be there already: it keeps what others have freed
    with mmap.mmap(-1, 1 << 26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as room:
        room.write(b"x" * (1 << 26))
        assert resident_pages() - before > 10_000
