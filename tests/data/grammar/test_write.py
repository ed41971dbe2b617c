import pytest

from tformer_cli.data.grammar.generate import generate_corpus
from tformer_cli.data.grammar.write import write_corpus
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
    with pytest.raises(DataError, match=r"cannot be written \(.*corpus\): file exists"):
        write_corpus(path, 10)


def test_an_interrupted_run_leaves_no_files_behind(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, 2000, progress=stop)
    assert list(tmp_path.iterdir()) == []
