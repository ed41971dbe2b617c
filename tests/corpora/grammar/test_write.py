import errno

import pytest

from tformer_cli.corpora.grammar.generate import generate_corpus
from tformer_cli.corpora.make_corpus import write_corpus
from tformer_cli.errors import DataError


def test_all_files_are_written_line_by_line_in_step(tmp_path):
    seen = []
    counts = write_corpus(tmp_path / "corpus", 100, seed=3, progress=seen.append)
    assert counts == {"train": 100, "valid": 5, "test": 5}
    assert seen == [110]
    names = sorted(path.name for path in (tmp_path / "corpus").iterdir())
    suffixes = ("align", "en", "fr", "tok.en", "tok.fr")
    assert names == sorted(f"{s}.{e}" for s in counts for e in suffixes)
    train = [pair for split, pair in generate_corpus(100, 3) if split == "train"]
    expected = "".join(pair.target + "\n" for pair in train).encode()
    assert (tmp_path / "corpus" / "train.fr").read_bytes() == expected
    links = (tmp_path / "corpus" / "train.align").read_text().splitlines()
    assert links == [pair.pharaoh() for pair in train]
    words = (tmp_path / "corpus" / "train.tok.en").read_text(encoding="utf-8").splitlines()
    assert [line.split(" ") for line in words] == [list(pair.source_words) for pair in train]


def test_writing_again_replaces_the_files(tmp_path):
    write_corpus(tmp_path, 40, seed=1)
    first = (tmp_path / "train.en").read_text()
    write_corpus(tmp_path, 40, seed=2)
    assert (tmp_path / "train.en").read_text() != first


def test_a_file_in_the_way_is_an_error(tmp_path):
    path = tmp_path / "corpus"
    path.write_text("x")
    with pytest.raises(DataError, match=r"corpus: cannot be written \(file exists"):
        write_corpus(path, 10)


def test_an_interrupted_run_leaves_no_files_behind(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, 2000, progress=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), None])
def test_a_failure_leaves_no_directory_that_it_has_made(tmp_path, monkeypatch, error):
    def fail(_):
        raise error

    n_pairs = 30
    if error is None:
        n_pairs = 0  # which the grammar refuses
    else:
        monkeypatch.setattr("os.fsync", fail)
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError):
        write_corpus(tmp_path / "there" / "new" / "corpus", n_pairs)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with pytest.raises(DataError):
        write_corpus(tmp_path / "there", n_pairs)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("name", ["train.en", "valid.fr", "test.align"])
def test_foreign_files_are_kept(tmp_path, name):
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(DataError, match=f"holds {name}, which this command did not write"):
        write_corpus(tmp_path, 30)
    assert (tmp_path / name).read_text() == "mine\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_corpus_with_a_foreign_file_is_not_replaced(tmp_path):
    write_corpus(tmp_path, 30)
    (tmp_path / "train.en").write_text("mine\n")
    with pytest.raises(DataError, match=r"holds train\.en, train\.fr, train\.tok\.en …, which"):
        write_corpus(tmp_path, 30)
    assert (tmp_path / "train.en").read_text() == "mine\n"
