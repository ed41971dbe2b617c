import gzip
import json
import sys
from pathlib import Path

import pytest

from tformer_cli.errors import DataError
from tformer_cli.plugins.corpora_tools.quality.examine import Corpora
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import SentencePair, corpus_name, read_corpus
from tformer_cli.text.lines import LineCounts

PAIRS = [SentencePair("one", "eins"), SentencePair("", "zwei"), SentencePair("a\u2028b", "drei")]


def read(directory, counts=None, **settings):
    return list(read_corpus(CorpusConfig(**settings), str(directory), counts))


def write_aligned(directory, source, target):
    (directory / "a.en").write_bytes("".join(f"{line}\n" for line in source).encode())
    with gzip.open(directory / "a.de.gz", "wb") as file:
        file.write("".join(f"{line}\n" for line in target).encode())


def test_aligned_files_are_read_line_by_line(tmp_path):
    write_aligned(tmp_path, *zip(*PAIRS, strict=True))
    assert read(tmp_path, source="a.en", target="a.de.gz") == PAIRS
    absolute = str(tmp_path / "a.en")
    assert read(tmp_path, source=absolute, target="a.de.gz") == PAIRS


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 5), (4, 1)])
def test_different_numbers_of_lines_are_named_with_both_counts(tmp_path, n_source, n_target):
    write_aligned(tmp_path, ["x"] * n_source, ["y"] * n_target)
    with pytest.raises(
        DataError, match=rf"a\.en, .*a\.de\.gz: .* \({n_source} and {n_target}\); give files"
    ):
        read(tmp_path, source="a.en", target="a.de.gz")


def test_lines_that_are_not_utf8_are_counted(tmp_path):
    (tmp_path / "a").write_bytes(b"x\n\xff\n")
    counts = LineCounts()
    pairs = read(tmp_path, counts, source="a", target="a")
    assert pairs[1] == ("\ufffd", "\ufffd")
    assert counts.not_utf8 == 2


def test_tsv_columns_are_counted_from_one(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tone\teins\n2\ttwo\tzwei\n", encoding="utf-8")
    assert read(tmp_path, tsv="a.tsv", source_field="3", target_field="2") == [
        ("eins", "one"),
        ("zwei", "two"),
    ]
    assert read(tmp_path, tsv="a.tsv") == [("1", "one"), ("2", "two")]


def test_a_short_tsv_line_is_named(tmp_path):
    (tmp_path / "a.tsv").write_text("one\teins\ntwo\n", encoding="utf-8")
    with pytest.raises(
        DataError,
        match=r"a\.tsv, line 2: has 1 column, but column 2 is needed; columns are split at tab",
    ):
        read(tmp_path, tsv="a.tsv")


def test_a_csv_file_given_as_tsv_gets_advice(tmp_path):
    (tmp_path / "a.csv").write_text("one,eins\ntwo,zwei\n", encoding="utf-8")
    with pytest.raises(DataError) as error:
        read(tmp_path, tsv="a.csv")
    assert str(error.value) == (
        f"{tmp_path}/a.csv, line 1: has 1 column, but column 2 is needed; "
        'columns are split at tabs, so give a CSV file as { dataset = "a.csv" }'
    )


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for files")
@pytest.mark.parametrize("text_field", ["", "2"])
def test_a_file_is_closed_before_its_error_is_told(tmp_path, text_field):
    """Else it stays open as long as the error is kept, and longer if that is part of a cycle."""
    path = tmp_path / "a.tsv"
    path.write_text("one\teins\ntwo\n" * 9)
    with pytest.raises(DataError, match="line 2") as first:
        read(tmp_path, tsv="a.tsv", text_field=text_field)
    corpora = Corpora(
        configs=[CorpusConfig(tsv="a.tsv", source_field="3")], directory=str(tmp_path)
    )
    with pytest.raises(DataError, match="line 1") as second:
        list(corpora.chunks(with_faults=True))
    assert path not in [file.resolve() for file in Path("/proc/self/fd").iterdir()]
    assert first.value is not second.value


@pytest.mark.parametrize("column", ["0", "-1", "en", "²"])
def test_a_tsv_column_must_be_a_number(tmp_path, column):
    (tmp_path / "a.tsv").write_text("one\teins\n", encoding="utf-8")
    with pytest.raises(DataError, match="source_field: must be a column counted from 1"):
        read(tmp_path, tsv="a.tsv", source_field=column)


def test_jsonl_fields_descend_by_dots(tmp_path):
    records = [{"translation": {"en": s, "de": t}, "a.b": t} for s, t in PAIRS]
    lines = [json.dumps(record) for record in records]
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\n".join(lines) + "\n\n", encoding="utf-8")
    nested = {"source_field": "translation.en", "target_field": "translation.de"}
    assert read(tmp_path, jsonl="a.jsonl", **nested) == PAIRS
    dotted = {"source_field": "translation.en", "target_field": "a.b"}
    assert read(tmp_path, jsonl="a.jsonl", **dotted) == PAIRS


def test_lone_surrogates_of_json_are_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"source": "\ud800", "target": "\ud83d\ude00"}')
    assert read(tmp_path, jsonl="a.jsonl") == [("\ufffd", "😀")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"a\.jsonl, line 2: is not JSON"),
        ("[" * 100_000, r"line 2: is not JSON"),
        ("[1]", r"line 2: is not a JSON object"),
        ('{"source": "x"}', r'line 2: has no field "target", only source; set'),
        ('{"source": "x", "target": null}', r'line 2: "target" is null, not a string'),
        ('{"source": 3, "target": "y"}', r'line 2: "source" is a number, not a string'),
    ],
)
def test_a_wrong_jsonl_line_is_named(tmp_path, line, message):
    good = '{"source": "x", "target": "y"}'
    (tmp_path / "a.jsonl").write_text(f"{good}\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, jsonl="a.jsonl")
    assert "\n" not in str(caught.value)


def test_a_target_may_be_a_whole_number(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"source": "x", "target": 5}\n{"source": "y", "target": -1}\n'
    )
    assert read(tmp_path, jsonl="a.jsonl") == [("x", "5"), ("y", "-1")]
    for value in ("true", "1.5", "[1]"):
        (tmp_path / "a.jsonl").write_text(f'{{"source": "x", "target": {value}}}\n')
        with pytest.raises(DataError, match='line 1: "target" is'):
            read(tmp_path, jsonl="a.jsonl")
    (tmp_path / "a.jsonl").write_text('{"text": 5}\n')
    with pytest.raises(DataError, match='"text" is a number, not a string'):
        read(tmp_path, jsonl="a.jsonl", text_field="text")


def test_missing_files_and_directories_are_errors(tmp_path):
    with pytest.raises(DataError, match=r"x\.tsv: no such file"):
        read(tmp_path, tsv="x.tsv")
    with pytest.raises(DataError, match="is a directory"):
        read(tmp_path.parent, tsv=tmp_path.name)


def test_the_built_in_corpus_gives_its_splits():
    train = read(".", built_in="train", pairs=40)
    test = read(".", built_in="test", pairs=40)
    assert len(train) == 40
    assert test[0].source == "The animal didn't cross the street because it was too tired."
    assert not set(train) & set(test)


def test_corpora_have_names_for_messages():
    assert corpus_name(CorpusConfig(source="a.en", target="a.de")) == "a.en, a.de"
    assert corpus_name(CorpusConfig(tsv="a.tsv")) == "a.tsv"
    assert corpus_name(CorpusConfig(built_in="valid")) == "built-in corpus, valid"
    assert corpus_name(CorpusConfig(dataset="wmt14", dataset_config="de-en")) == (
        "wmt14, de-en, train"
    )
