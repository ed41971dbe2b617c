import threading
from collections import Counter
from itertools import islice

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.loading import loader as loading
from tformer_cli.text.loading.encoded import encode_corpus
from tformer_cli.text.loading.loader import LoaderPosition, TrainingLoader
from tformer_cli.text.tokenizer import EOS_ID
from tformer_cli.trainer.processes.data_parallel import share_of

BUDGET = 300


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, pairs, tokenizers):
    directory = tmp_path_factory.mktemp("corpora")
    built = []
    for name, chosen in (("a", pairs[:200]), ("b", pairs[200:])):
        path = directory / f"{name}.tsv"
        path.write_text("".join(f"{s}\t{t}\n" for s, t in chosen), encoding="utf-8")
        corpus = CorpusConfig(tsv=str(path))
        data = DataConfig(train=(corpus,), cache_directory=str(directory))
        built.append(encode_corpus(corpus, data, tokenizers["bpe"]))
    return built


@pytest.fixture
def open_loader(corpora, tokenizers):
    loaders, before = [], set(threading.enumerate())

    def open_one(weights=(1.0, 1.0), **settings):
        chosen = {"tokens_per_batch": BUDGET, "seed": 1, **settings}
        loaders.append(TrainingLoader(corpora, weights, tokenizers["bpe"], **chosen))
        return loaders[-1]

    yield open_one
    for loader in loaders:
        loader.close()
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if thread.name == "tformer-prefetch"]


@pytest.fixture(params=["one window", "windows"])
def windows(request, monkeypatch):
    """Epochs in one window, and in five."""
    if request.param == "windows":
        monkeypatch.setattr(loading, "WINDOW", 64)
        monkeypatch.setattr(loading, "BLOCK", 8)


def content(batch):
    return (batch.source.tolist(), batch.target_input.tolist(), batch.target_output.tolist())


def sentences(batches, tokenizer):
    """Source texts of batches, decoded."""
    rows = (row.tolist() for batch, _ in batches for row in batch.source)
    return tokenizer.decode_batch(list(rows))


def epoch_of(loader, epoch):
    skip = sum(loader.n_batches(before) for before in range(epoch))
    return list(islice(loader, skip, skip + loader.n_batches(epoch)))


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_an_epoch_holds_every_pair_once(open_loader, tokenizers, pairs, bpe_dropout):
    loader = open_loader(bpe_dropout=bpe_dropout)
    for epoch in (0, 1):
        found = sentences(epoch_of(loader, epoch), tokenizers["bpe"])
        assert sorted(found) == sorted(source for source, _ in pairs)


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_resuming_from_any_position_continues_with_the_same_batches(open_loader, bpe_dropout):
    straight = open_loader(bpe_dropout=bpe_dropout)
    n_batches = straight.n_batches(0)
    # Into the third epoch, over the ends of pools and epochs.
    whole = list(islice(straight, 2 * n_batches + 10))
    for stop in (1, 31, 32, 33, n_batches - 1, n_batches, n_batches + 1, 2 * n_batches):
        resumed = open_loader(bpe_dropout=bpe_dropout, position=whole[stop - 1][1])
        for (batch, after), (expected, position) in zip(
            islice(resumed, 10), whole[stop:], strict=False
        ):
            assert content(batch) == content(expected)
            assert after == position


def test_positions_count_batches_and_epochs(open_loader):
    loader = open_loader()
    n_batches = loader.n_batches(0)
    positions = [position for _, position in islice(loader, n_batches + 1)]
    assert positions[:2] == [LoaderPosition(0, 1), LoaderPosition(0, 2)]
    assert positions[-2:] == [LoaderPosition(1, 0), LoaderPosition(1, 1)]


def test_epochs_and_seeds_differ(open_loader):
    first = open_loader()
    batches = [
        [content(b) for b, _ in epoch_of(loader, e)]
        for loader, e in ((first, 0), (first, 1), (open_loader(seed=2), 0))
    ]
    assert batches[0] != batches[1]
    assert batches[0] != batches[2]


def test_dropout_draws_anew_in_each_epoch(open_loader, tokenizers):
    loader = open_loader(bpe_dropout=0.3)
    drawn = []
    for epoch in (0, 1):
        rows = [row for batch, _ in epoch_of(loader, epoch) for row in batch.source.tolist()]
        drawn.append({tokenizers["bpe"].decode(row): [i for i in row if i] for row in rows})
    differing = sum(ids != drawn[1][text] for text, ids in drawn[0].items())
    assert differing > len(drawn[0]) / 2


@pytest.mark.usefixtures("windows")
def test_weights_say_how_often_an_epoch_sees_a_pair(open_loader, tokenizers, pairs):
    loader = open_loader(weights=(2.5, 0.5))
    seen = [Counter(sentences(epoch_of(loader, epoch), tokenizers["bpe"])) for epoch in (0, 1)]
    both = seen[0] + seen[1]
    for place, (source, _) in enumerate(pairs):
        assert both[source] == (5 if place < 200 else 1)
        assert place >= 200 or seen[0][source] in (2, 3)


@pytest.mark.usefixtures("windows")
def test_batches_keep_to_the_budget_without_dropout(open_loader):
    for batch, _ in epoch_of(open_loader(), 0):
        width = max(batch.source.shape[1], batch.target_input.shape[1])
        assert batch.n_sentences * width <= BUDGET


def test_dropout_keeps_near_the_budget_and_to_the_longest_pair(open_loader, corpora):
    longest = max(c.longest for c in corpora) + 1
    for batch, _ in epoch_of(open_loader(bpe_dropout=0.2), 0):
        width = max(batch.source.shape[1], batch.target_input.shape[1])
        assert batch.n_sentences * width <= 1.25 * BUDGET
        assert width <= longest


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.1])
def test_sources_of_some_models_have_no_end(open_loader, bpe_dropout):
    usual, without = (
        next(iter(open_loader(bpe_dropout=bpe_dropout, source_eos=eos)))[0] for eos in (True, False)
    )
    assert (usual.source == EOS_ID).sum() == usual.n_sentences
    assert (without.source == EOS_ID).sum() == 0
    assert without.n_source_tokens == usual.n_source_tokens - usual.n_sentences
    assert without.target_output.tolist() == usual.target_output.tolist()


def test_nothing_to_train_on_is_an_error(open_loader):
    with pytest.raises(DataError, match="no sentence pairs to train on"):
        open_loader(weights=(1e-9, 1e-9))


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_a_corpus_of_which_nothing_is_left_changes_nothing(
    corpora, tokenizers, tmp_path, bpe_dropout
):
    (tmp_path / "blank.tsv").write_text("\t\n\tb\n")
    blank = CorpusConfig(tsv=str(tmp_path / "blank.tsv"))
    data = DataConfig(train=(blank,), cache_directory=str(tmp_path))
    nothing = encode_corpus(blank, data, tokenizers["bpe"])
    batches = []
    for chosen in (corpora, [nothing, *corpora, nothing]):
        weights = [1.5] * len(chosen)
        settings = {"seed": 1, "bpe_dropout": bpe_dropout}
        loader = TrainingLoader(chosen, weights, tokenizers["bpe"], BUDGET, **settings)
        batches.append(loader.n_batches(0))
        assert len(list(islice(loader, batches[-1]))) == batches[-1]
        loader.close()
    assert len(nothing) == 0
    assert batches[0] == batches[1]


def test_dropout_without_merges_is_an_error(corpora, tokenizers):
    with pytest.raises(DataError, match='needs a "bpe" tokenizer'):
        TrainingLoader(corpora, [1.0, 1.0], tokenizers["char"], 300, 1, bpe_dropout=0.1)


def test_errors_of_the_background_reach_the_consumer(open_loader, corpora, monkeypatch):
    loader = open_loader()
    monkeypatch.setattr(type(corpora[0]), "token_ids", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


def test_closing_ends_an_iteration_at_once(open_loader):
    loader = open_loader(prefetch=1)
    stream = iter(loader)
    next(stream)
    loader.close()
    assert len(list(stream)) <= 1


@pytest.mark.parametrize("ends", [(True, True, True), (False, True, False), (False, False, True)])
@pytest.mark.parametrize(("bpe_dropout", "n_batches"), [(0.0, 4), (0.0, 3), (0.3, 3)])
def test_each_process_makes_its_own_pairs_and_no_others(
    open_loader, monkeypatch, bpe_dropout, n_batches, ends
):
    names = ("source_eos", "target_bos", "target_eos")
    settings = {"bpe_dropout": bpe_dropout, **dict(zip(names, ends, strict=True))}
    whole = [batch for batch, _ in islice(open_loader(**settings), n_batches)]
    made, read = [], TrainingLoader._plain_ids
    monkeypatch.setattr(
        TrainingLoader,
        "_plain_ids",
        lambda *arguments: made.append(len(arguments[1])) or read(*arguments),
    )
    planned = [batch for batch, _ in islice(open_loader(**settings, is_shared=True), n_batches)]
    assert bool(made) == bool(bpe_dropout)  # which lengthens all of a pool
    for ours, theirs in zip(planned, whole, strict=True):
        for name in ("n_sentences", "n_source_tokens", "n_target_tokens", "n_cells"):
            assert getattr(ours, name) == getattr(theirs, name)
    made.clear()
    for n_processes in (1, 2, 3, 20):
        for rank in range(n_processes):
            share = share_of(planned, rank, n_processes)
            expected = share_of(whole, rank, n_processes)
            assert [content(batch) for batch in share] == [content(batch) for batch in expected]
            if not bpe_dropout:
                assert sum(made) == sum(batch.n_sentences for batch in expected)
                made.clear()
