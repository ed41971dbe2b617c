"""Corpora of every kind, translated in this process."""

import gzip
import json
import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tformer_cli.errors import ArtifactError, DataError, TformerError, UsageError
from tformer_cli.kinds.lines.translate import translate_file, translate_lines
from tformer_cli.plugins.corpora_tools.bulk.plan import GivenCorpus, kind_of
from tformer_cli.plugins.corpora_tools.bulk.shards import Event, Fields, Task
from tformer_cli.plugins.corpora_tools.bulk.translate_corpus import (
    BulkOptions,
    preview_corpus,
    translate_corpus,
)
from tformer_cli.plugins.corpora_tools.bulk.translate_shard import (
    check_answer,
    describe,
    translate_shard,
)
from tformer_cli.search.constraints import Term
from tformer_cli.text.lines import shard_range

LINES = [
    *("A man sleeps.", "", "Two dogs run in the snow.", "the street", "A woman and a dog."),
    *("q" * 500, "  ", "A man\u2028sleeps", "dog " * 30, "Two men.", "snow"),
]
FIXED = {"device": "cpu", "precision": "float32"}


class InThisProcess:
    """Translates shards here, in an order of its own; may be stopped, or give shards up."""

    def __init__(self, *, stop_after=None, gives_up=()):
        self.stop_after = stop_after
        self.gives_up = gives_up
        self.translated = []

    @contextmanager
    def start(self, opening):
        self.opening = opening
        self.facts = describe(opening)
        check_answer(self.facts)
        yield self

    def run(self, tasks):
        for place, (number, task) in enumerate(reversed(list(tasks))):
            if place == self.stop_after:
                raise KeyboardInterrupt
            if number in self.gives_up:
                yield Event(kind="given up", worker="1", number=number, reason="killed")
                continue
            record = json.loads(json.dumps(task.as_json()))
            assert Task.from_json(record) == task
            answer = translate_shard(self.opening, record)
            self.translated.append(number)
            yield Event(
                kind="done", worker="1", number=number, answer=json.loads(json.dumps(answer))
            )


def run(model, sources, output, workers=None, *, lines_per_shard=4, bulk=None, **options):
    names = {"kind", "fields", "split", "part"} & options.keys()
    corpus = GivenCorpus(
        sources=[str(source) for source in sources],
        lines_per_shard=lines_per_shard,
        **{name: options.pop(name) for name in names},
    )
    workers = workers or InThisProcess()
    bulk = BulkOptions(workers=workers, **(bulk or {}))
    return translate_corpus(model, corpus, output, bulk, **{**FIXED, **options})


def join_parts(directory):
    return b"".join(file.read_bytes() for file in sorted(directory.glob("part-*")))


def files(directory):
    # The record of the job has times
    return {f.name: f.read_bytes() for f in directory.iterdir() if f.name != "job.json"}


@pytest.fixture(scope="module")
def expected(model):
    """The translations of the lines, each alone."""
    return [
        translation.text
        for line in LINES
        for translation in translate_lines(model, [line], **FIXED)
    ]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode() + b"\nbad \xff byte")
    return path


@pytest.mark.parametrize("lines_per_shard", [1, 3, 4, 12, 1000])
def test_shards_of_text_are_what_translate_writes(model, text, tmp_path, lines_per_shard):
    translate_file(model, text, tmp_path / "out.txt", **FIXED)
    report = run(model, [text], tmp_path / "out", lines_per_shard=lines_per_shard)
    assert join_parts(tmp_path / "out") == (tmp_path / "out.txt").read_bytes()
    assert report.counts == {
        "lines": 12, "not_utf8": 1, "split": 1, "truncated": 0, "unknown": 0, "unsatisfied": 0,
        "sentences": 0, "unseen": 0, "untrained": 0,
    }  # fmt: skip
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    shards = manifest["shards"]
    assert [shard["first_line"] for shard in shards] == list(range(0, 12, lines_per_shard))
    assert sum(shard["lines"] for shard in shards) == manifest["lines"] == 12
    assert len(files(tmp_path / "out")) == len(shards) + 1


def test_sampling_goes_by_the_line_in_its_file(model, text, tmp_path):
    options = {"sampling": True, "seed": 7}
    translate_file(model, text, tmp_path / "out.txt", **FIXED, **options)
    run(model, [text], tmp_path / "out", **options)
    assert join_parts(tmp_path / "out") == (tmp_path / "out.txt").read_bytes()


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_are_decompressed_once_and_several_sources_follow_each_other(
    model, text, tmp_path, ending
):
    packed = tmp_path / f"packed.txt.{ending}"
    pack = gzip.compress if ending == "gz" else partial(pa.compress, codec="zstd", asbytes=True)
    packed.write_bytes(pack(text.read_bytes()))
    run(model, [text], tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        run(model, [packed, text], tmp_path / "two", InThisProcess(stop_after=4))
    assert (tmp_path / "two" / "source-00000.unpacked").read_bytes() == text.read_bytes()
    run(model, [packed, text], tmp_path / "two")
    assert join_parts(tmp_path / "two") == 2 * join_parts(tmp_path / "one")
    assert sorted(files(tmp_path / "two")) == [
        "manifest.json", *(f"part-0000{number}.txt" for number in range(6))
    ]  # fmt: skip
    shards = json.loads((tmp_path / "two" / "manifest.json").read_text())["shards"]
    assert [(shard["source"], shard["first_line"]) for shard in shards[2:4]] == [
        (str(packed), 8), (str(text), 0)
    ]  # fmt: skip


def test_an_interrupted_corpus_is_continued_and_ends_with_the_same_bytes(model, text, tmp_path):
    run(model, [text], tmp_path / "whole")
    for n_more in (1, 1):
        with pytest.raises(KeyboardInterrupt):
            run(model, [text], tmp_path / "out", InThisProcess(stop_after=n_more))
    notes, workers = [], InThisProcess()
    report = run(model, [text], tmp_path / "out", workers, tell=notes.append)
    assert workers.translated == [0]
    assert report.begun == 8
    assert f"{tmp_path / 'out'}: 8 of 12 lines done; resuming after them" in notes
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    # once more: nothing is left to do; a damaged shard is done again
    workers = InThisProcess()
    run(model, [text], tmp_path / "out", workers)
    assert workers.translated == []
    (tmp_path / "out" / "part-00001.txt").write_bytes(b"x")
    run(model, [text], tmp_path / "out", workers, tell=notes.append)
    assert workers.translated == [1]
    assert (
        f"{tmp_path / 'out' / 'part-00001.txt'}: is missing or damaged; it is translated again"
        in notes
    )
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_another_model_option_or_source_is_refused_by_name(model, language_copy, text, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"source": "A man"}\n')
    run(model, [path], tmp_path / "records")
    with pytest.raises(ArtifactError, match="a different score_field, target_field; remove"):
        run(model, [path], tmp_path / "records", fields=Fields(translation="t", score="s"))
    run(model, [text], tmp_path / "out")
    before = files(tmp_path / "out")
    for what, again in {
        "beam_size": lambda out: run(model, [text], out, beam_size=2),
        "lines_per_shard": lambda out: run(model, [text], out, lines_per_shard=5),
        "MODEL": lambda out: run(language_copy, [text], out),
        "SOURCE": lambda out: run(model, [text, text], out),
        "glossary": lambda out: run(
            model, [text], out, bulk={"glossary": [Term("dog", "Hund", is_banned=False)]}
        ),
        "shard": lambda out: run(model, [text], out, part=(0, 2)),
    }.items():
        with pytest.raises(ArtifactError, match=rf"was started with a different {what}; remove"):
            again(tmp_path / "out")
    assert files(tmp_path / "out") == before
    run(model, [text], tmp_path / "out", threads=2, batch_tokens=99)  # these change nothing


@pytest.fixture(scope="module")
def language_copy(model, tmp_path_factory):
    """The same model with other defaults of its search."""
    path = tmp_path_factory.mktemp("copy")
    for file in model.iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    config = json.loads((path / "config.json").read_text())
    config["decoding"]["beam_size"] = 2
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_records_keep_their_fields(model, expected, tmp_path):
    path = tmp_path / "in.jsonl"
    records = [
        {"id": number, "text": {"en": line}, "x": [None, 1e5]} for number, line in enumerate(LINES)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + "\n")
    fields = Fields(source="text.en", translation="text_fr", score="score")
    run(model, [path], tmp_path / "out", fields=fields)
    rows = [json.loads(line) for line in join_parts(tmp_path / "out").splitlines()]
    assert len(rows) == len(LINES) + 1
    for record, source, translation in zip(rows, records, expected, strict=False):
        assert isinstance(record.pop("score"), float)
        assert record.pop("text_fr") == translation
        assert record == source
    assert (rows[-1]["text.en"], rows[-1]["text_fr"]) == ("", "")  # of a blank line


def test_a_null_of_records_has_the_translation_null(model, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"t": {"en": null}, "required": ["dog"]}\n{"t": {"en": "A man"}}\n')
    run(model, [path], tmp_path / "out", fields=Fields(source="t.en", score="s"))
    null, other = map(json.loads, join_parts(tmp_path / "out").splitlines())
    assert null == {"t": {"en": None}, "required": ["dog"], "translation": None, "s": None}
    assert isinstance(other["translation"], str)


def test_records_say_what_their_translations_must_hold(model, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"source": "A man", "required": ["dog"]}\n{"source": "A man"}\n')
    run(model, [path], tmp_path / "out", max_length=12)
    first, second = (
        json.loads(line)["translation"] for line in join_parts(tmp_path / "out").splitlines()
    )
    assert "dog" in first
    assert "dog" not in second


def test_tables_of_tabs_get_a_column(model, expected, tmp_path):
    lines = [line.replace("\u2028", " ") for line in LINES]
    path = tmp_path / "in.tsv"
    path.write_text("".join(f"{number}\t{line}\tz\n" for number, line in enumerate(lines)))
    run(model, [path], tmp_path / "out", fields=Fields(source="2"))
    rows = [line.split("\t") for line in join_parts(tmp_path / "out").decode().split("\n")[:-1]]
    assert [row[:3] for row in rows] == [
        [str(number), line, "z"] for number, line in enumerate(lines)
    ]
    kept = [place for place, line in enumerate(LINES) if "\u2028" not in line]
    assert [rows[place][3] for place in kept] == [expected[place] for place in kept]


@pytest.mark.parametrize(("field", "score"), [("text", ""), ("both.en", "score")])
def test_parquet_keeps_its_columns_over_any_row_groups(model, expected, tmp_path, field, score):
    texts = [*LINES[:4], None, *LINES[4:]]
    table = pa.table(
        {
            "id": pa.array(range(len(texts)), pa.int16()),
            "text": pa.array(texts, pa.large_string()),
            "both": [{"en": text, "n": 1} for text in texts],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=5)
    run(
        model, [tmp_path / "in.parquet"], tmp_path / "out",
        fields=Fields(source=field, translation="fr", score=score),
    )  # fmt: skip
    parts = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert [pq.read_metadata(part).num_rows for part in parts] == [4, 4, 4]
    whole = pa.concat_tables(pq.read_table(part) for part in parts)
    assert whole.select(table.column_names).equals(table)
    assert whole["fr"].to_pylist() == [*expected[:4], None, *expected[4:]]
    assert whole.column_names == ["id", "text", "both", "fr", *([score] if score else [])]
    if score:
        assert whole[score].null_count == 1


def test_datasets_keep_their_features_and_become_parquet(model, expected, tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "kind": datasets.ClassLabel(names=["a", "b"])}
    )
    whole = datasets.Dataset.from_dict({"text": LINES, "kind": [0, 1] * 5 + [0]}, features=features)
    datasets.DatasetDict({"train": whole, "test": whole.select(range(2))}).save_to_disk(
        tmp_path / "saved"
    )
    whole.to_parquet(tmp_path / "one.parquet")
    fields = Fields(source="text", score="score")
    for source, n_rows, options in (
        (tmp_path / "saved", 11, {}),
        (tmp_path / "saved", 2, {"split": "test"}),
        (tmp_path / "one.parquet", 11, {}),
    ):
        output = tmp_path / f"out-{source.name}-{n_rows}"
        run(model, [source], output, fields=fields, **options)
        dataset = datasets.Dataset.from_parquet(
            [str(part) for part in sorted(output.glob("part-*"))],
            cache_dir=str(tmp_path / "cache"),
        )
        assert dataset.features == {
            **features, "translation": datasets.Value("string"), "score": datasets.Value("float64")
        }  # fmt: skip
        assert dataset["translation"][:] == expected[:n_rows]
        assert dataset["text"][:] == LINES[:n_rows]


def test_bad_sources_are_refused_before_anything_is_written(model, text, tmp_path):
    def refusal_of(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError) as error:
            run(model, [path], tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()
        return str(error.value).removeprefix(f"{tmp_path}/")

    good = b'{"source": "a"}\n'
    assert refusal_of("a.jsonl", good + b"{\n").startswith("a.jsonl, line 2: is not JSON")
    assert refusal_of("b.jsonl", good + b'{"text": 1}') == (
        'b.jsonl, line 2: has no field "source", only text; choose another by --source-field'
    )
    assert refusal_of("b.jsonl", good + b'{"source": 1}') == (
        'b.jsonl, line 2: "source" is a number, not a string; correct the data'
    )
    assert "line 2: cannot be written unchanged (1e400" in refusal_of(
        "b.jsonl", good + b'{"source": "a", "x": 1e400}'
    )
    assert refusal_of("c.jsonl", b'{"source": "a", "translation": "b"}') == (
        'c.jsonl, line 1: has a field "translation" already; choose another name with '
        "--target-field"
    )
    assert refusal_of("d.jsonl", b'{"source": "a", "banned": 1}').startswith('d.jsonl:1: "banned"')
    assert refusal_of("e.tsv", b"a\tb\nc\n", fields=Fields(source="2")).startswith(
        "e.tsv, line 2: has 1 column, but column 2 is asked for"
    )
    for ragged, columns in ((b"c", "1 column"), (b"c\td\te", "3 columns")):
        assert refusal_of("e.tsv", b"a\tb\n" + ragged + b"\n") == (
            f"e.tsv, line 2: has {columns}, but the lines before it have 2; correct the line; "
            "columns are split at tabs"
        )
    assert refusal_of("f.tsv", b"a\n", fields=Fields(source="x")) == (
        '--source-field: must be a column of TSV from 1, but is "x"'
    )
    assert "cannot be read as Parquet" in refusal_of("g.parquet", b"PAR1 no")
    assert "is damaged or not a compressed file" in refusal_of(
        "h.gz", gzip.compress(b"abc" * 99)[:-9]
    )
    assert "gzip" in refusal_of("i.txt", gzip.compress(b"abc"))
    for column, message in (("id", 'column "id" holds int64, not texts'), ("x", 'no field "x"')):
        pq.write_table(pa.table({"id": [1], "t": ["a"]}), tmp_path / "t.parquet")
        with pytest.raises(DataError, match=message):
            run(model, [tmp_path / "t.parquet"], tmp_path / "out", fields=Fields(source=column))
    with pytest.raises(DataError, match="no such file"):
        run(model, [tmp_path / "none.txt"], tmp_path / "out")
    with pytest.raises(UsageError, match=r"different kinds \(text, tsv\)"):
        run(model, [text, tmp_path / "e.tsv"], tmp_path / "out")
    with pytest.raises(UsageError, match="--beam-size"):
        run(model, [text], tmp_path / "out", beam_size=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("text", {"source": "2"}, "--source-field: files of text have no fields; omit it"),
        ("text", {"translation": "fr"}, "--target-field: files of text have no fields; omit it"),
        ("text", {"score": "s"}, "--score-field: files of text have no fields; omit it"),
        ("tsv", {"translation": "2"}, "--target-field: columns of TSV have no names, and"),
        ("jsonl", {"translation": "a.fr"}, '--target-field: "a.fr" would lie in another field'),
        ("parquet", {"translation": "a.fr"}, '--target-field: "a.fr" would lie in another field'),
        ("dataset", {"score": "a.s"}, '--score-field: "a.s" would lie in another field'),
    ],
)
def test_fields_without_effect_are_refused(model, text, tmp_path, kind, fields, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        run(model, [text], tmp_path / "out", kind=kind, fields=Fields(**fields))
    assert not (tmp_path / "out").exists()


def test_sources_that_cannot_be_read_again_are_refused(model, tmp_path):
    with pytest.raises(UsageError, match=r"stdin cannot be read twice; use `tformer translate`"):
        run(model, ["-"], tmp_path / "out")
    datasets.Dataset.from_dict({"source": LINES}).save_to_disk(tmp_path / "saved")
    for output in (tmp_path / "saved" / "out", tmp_path / "saved" / "a" / ".." / "b"):
        with pytest.raises(UsageError, match=r"lies in .*saved, which is read; name another"):
            run(model, [tmp_path / "saved"], output)


def test_text_that_is_no_unicode_is_translated_as_by_translate(model, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"source": "A man \\ud800 sleeps", "x": "\\udfff"}\n')
    run(model, [path], tmp_path / "out")
    (record,) = map(json.loads, join_parts(tmp_path / "out").splitlines())
    assert (record["source"], record["x"]) == ("A man \ud800 sleeps", "\udfff"), "as they were"
    (expected,) = translate_lines(model, ["A man \ufffd sleeps"], **FIXED)
    assert record["translation"] == expected.text


def test_an_error_of_a_line_names_its_file(model, text, tmp_path):
    with pytest.raises(DataError, match=r"in.txt, line 6: has \d+ tokens, .* --too-long split"):
        run(model, [text], tmp_path / "out", too_long="error")


def test_a_source_that_changes_meanwhile_is_refused(model, text, tmp_path):
    class Changing(InThisProcess):
        def run(self, tasks):
            text.write_bytes(text.read_bytes() + b"\nmore")
            return super().run(tasks)

    with pytest.raises(DataError, match="is not there, or has changed since"):
        run(model, [text], tmp_path / "out", Changing())
    with pytest.raises(ArtifactError, match="a different SOURCE"):
        run(model, [text], tmp_path / "out")


def test_shards_that_are_given_up_are_named_and_the_others_are_there(model, text, tmp_path):
    with pytest.raises(TformerError, match=r"began part-00001.txt \(killed\) has died; all other"):
        run(model, [text], tmp_path / "out", InThisProcess(gives_up={1}))
    assert sorted(files(tmp_path / "out")) == [
        "manifest.json", "part-00000.txt", "part-00002.txt", "shards.jsonl"
    ]  # fmt: skip
    workers = InThisProcess()
    run(model, [text], tmp_path / "out", workers)
    assert workers.translated == [1]


def test_a_preview_writes_nothing(model, text, tmp_path):
    corpus = GivenCorpus(sources=[str(text)], lines_per_shard=5)
    bulk = BulkOptions(workers=InThisProcess())
    report = preview_corpus(model, corpus, tmp_path / "out", bulk, **FIXED)
    assert (report.plan.rows, len(report.plan.shards), report.begun) == (12, 3, 0)
    assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        run(model, [text], tmp_path / "out", InThisProcess(stop_after=1), lines_per_shard=5)
    before = files(tmp_path / "out")
    assert preview_corpus(model, corpus, tmp_path / "out", bulk, **FIXED).begun == 2
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("name", ["empty.txt", "empty.tsv", "empty.jsonl"])
def test_no_lines_are_an_empty_shard(model, tmp_path, name):
    (tmp_path / name).touch()
    report = run(model, [tmp_path / name], tmp_path / "out")
    part = f"part-00000{Path(name).suffix}"
    assert (report.plan.rows, sorted(files(tmp_path / "out"))) == (0, ["manifest.json", part])
    assert join_parts(tmp_path / "out") == b""


@pytest.mark.parametrize(("kind", "n_rows"), [("parquet", 0), ("parquet", 1), ("dataset", 1)])
def test_a_table_or_part_without_rows_keeps_its_columns(model, tmp_path, kind, n_rows):
    features = datasets.Features({"source": datasets.Value("string"), "n": datasets.Value("int8")})
    rows = {"source": LINES[:n_rows], "n": [1] * n_rows}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "in.parquet")
    fields = Fields(score="s")
    run(model, [tmp_path / "in.parquet"], tmp_path / "out", kind=kind, fields=fields, part=(0, 2))
    table = pq.read_table(tmp_path / "out" / "part-00000.parquet")
    assert table.num_rows == 0
    assert table.schema.names == ["source", "n", "translation", "s"]
    assert datasets.Features.from_arrow_schema(table.schema) == {
        **features, "translation": datasets.Value("string"), "s": datasets.Value("float64")
    }  # fmt: skip


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_parquet_stays_compressed_as_it_was(model, tmp_path, codec):
    pq.write_table(pa.table({"source": LINES[:2]}), tmp_path / "in.parquet", compression=codec)
    run(model, [tmp_path / "in.parquet"], tmp_path / "out")
    expected, found = (
        [group.column(place).compression for place in range(group.num_columns)]
        for group in (
            pq.read_metadata(path).row_group(0)
            for path in (tmp_path / "in.parquet", tmp_path / "out" / "part-00000.parquet")
        )
    )
    assert found == expected * 2


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_joined_parts_are_the_whole(model, text, tmp_path, count):
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    options = {"sampling": True, "seed": 7}  # goes by the number of the line
    run(model, [text, packed], tmp_path / "whole", **options)
    parts = [tmp_path / f"out.{index}" for index in range(count)]
    for index, part in enumerate(parts):
        report = run(model, [text, packed], part, part=(index, count), **options)
        manifest = json.loads((part / "manifest.json").read_text())
        assert manifest["lines"] == report.plan.rows == len(shard_range(24, index, count))
        assert manifest["origin"]["shard"] == f"{index}/{count}"
    assert b"".join(map(join_parts, parts)) == join_parts(tmp_path / "whole")
    with pytest.raises(ArtifactError, match="a different shard; remove"):
        run(model, [text, packed], parts[0], part=(0, 99), **options)


def test_parts_of_tables_are_rows(model, tmp_path):
    table = pa.table({"source": LINES, "n": range(len(LINES))})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=3)
    tables = []
    for index in range(3):
        run(model, [tmp_path / "in.parquet"], tmp_path / f"{index}", part=(index, 3))
        tables += [pq.read_table(part) for part in sorted((tmp_path / f"{index}").glob("part-*"))]
    assert pa.concat_tables(tables).select(["source", "n"]).equals(table)


def csv_of(text, *, line_end, mark=""):
    table = [
        f'id;"comment";x{line_end}',
        f'007;"{text}; 1.50";"a{line_end}b"{line_end}',
        line_end,
        f"8;;{line_end}",
        f'9;{text};"c ""d"""',
    ]
    return mark + "".join(table)


@pytest.mark.parametrize(("line_end", "mark"), [("\n", ""), ("\r\n", "\ufeff")])
def test_csv_stays_csv_with_the_bytes_of_its_cells(model, tmp_path, line_end, mark):
    file = tmp_path / "in.csv"
    file.write_bytes(csv_of(LINES[0], line_end=line_end, mark=mark).encode())
    fields = Fields(source="comment", translation="fr", score="score")
    report = run(model, [file], tmp_path / "out", fields=fields, lines_per_shard=3)
    assert report.counts["lines"] == 4
    parts = sorted((tmp_path / "out").glob("part-*"))
    assert [part.name for part in parts] == ["part-00000.csv", "part-00001.csv"]
    contents = [part.read_bytes().decode() for part in parts]
    head = f'{mark}id;"comment";x;fr;score{line_end}'
    assert [part[: len(head)] for part in contents] == [head, head]
    row = f'007;"{LINES[0]}; 1.50";"a{line_end}b";'
    assert contents[0].startswith(f"{head}{row}")
    assert re.fullmatch(rf"8;;;[^;]*;0\.000000{line_end}", contents[0][contents[0].index("8;;") :])
    assert f"{line_end}{line_end}8;" in contents[0], "a line without cells stays one"
    frame = pd.concat(
        pd.read_csv(part, sep=";", dtype=str, keep_default_na=False) for part in parts
    )
    assert list(frame["id"]) == ["007", "8", "9"]
    assert list(frame["x"]) == [f"a{line_end}b", "", 'c "d"']
    texts = [f"{LINES[0]}; 1.50", "", LINES[0]]
    assert list(frame["comment"]) == texts
    assert list(frame["fr"]) == [
        translation.text
        for text in texts
        for translation in translate_lines(model, [text], **FIXED)
    ]
    # By number, compressed, and continued
    packed = tmp_path / "in.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    again = Fields(source="2", translation="fr", score="score")
    run(model, [packed], tmp_path / "again", fields=again, lines_per_shard=3)
    assert [part.read_bytes() for part in sorted((tmp_path / "again").glob("part-*"))] == [
        part.read_bytes() for part in parts
    ]


def test_a_column_without_a_name(model, tmp_path):
    frame = pd.DataFrame({"source": [LINES[0], LINES[4]]})
    frame.to_csv(tmp_path / "in.csv")
    run(model, [tmp_path / "in.csv"], tmp_path / "out")
    translated = pd.read_csv(tmp_path / "out/part-00000.csv", index_col=0)
    assert translated[["source"]].equals(frame)


def test_line_ends_in_cells_of_csv_stay(model, tmp_path):
    cell = f"{LINES[0]}\n\n{LINES[4]}"
    (tmp_path / "in.csv").write_text(f'source,b\n"{cell}",1\nsnow,2\n')
    report = run(model, [tmp_path / "in.csv"], tmp_path / "out")
    assert report.counts["lines"] == 2
    frame = pd.read_csv(tmp_path / "out/part-00000.csv")
    first, last = (next(iter(translate_lines(model, [LINES[n]], **FIXED))).text for n in (0, 4))
    assert frame["translation"][0] == f"{first}\n\n{last}"


@pytest.mark.parametrize(
    ("data", "fields", "error"),
    [
        ("a,b\n1,2\n", {}, 'in.csv: has no field "source", only a, b; choose another by --sour'),
        ("a,b\n1,2\n", {"source": "3"}, 'in.csv: has no field "3", only a, b'),
        ("", {}, 'in.csv: has no field "source", only none'),
        ("source,translation\n", {}, 'has a column "translation" already; choose another name'),
        ("source,b\n1,2\n3\n", {}, "in.csv, row 2: has 1 cell, but the header has 2; correct"),
        ('source,b\n1,2\n3,"4\n5,6', {}, 'in.csv: its last row has a quote (") that does not'),
        ("a,source,source\n1,2,3\n", {}, 'in.csv: has several columns "source"; name one by its'),
        ("\ufeffsource,b\n1,2\n", {}, "in.csv: is in UTF-16; convert it: iconv -f"),
    ],
)
def test_csv_that_cannot_be_translated(model, tmp_path, data, fields, error):
    encoding = "utf-16-le" if "UTF-16" in error else "utf-8"
    (tmp_path / "in.csv").write_text(data, encoding=encoding)
    with pytest.raises(DataError) as raised:
        run(model, [tmp_path / "in.csv"], tmp_path / "out", fields=Fields(**fields))
    assert error in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_kinds_follow_from_names(tmp_path):
    (tmp_path / "folder").mkdir()
    assert {
        name: kind_of(name)
        for name in (
            *("a.txt", "news.en", "b.tsv.gz", "c.jsonl.xz", "d.parquet", "e.csv"),
            *("facebook/flores", "some/file.en", str(tmp_path / "folder")),
        )
    } == {
        "a.txt": "text", "news.en": "text", "b.tsv.gz": "tsv", "c.jsonl.xz": "jsonl",
        "d.parquet": "parquet", "e.csv": "csv", "facebook/flores": "dataset",
        "some/file.en": "text", str(tmp_path / "folder"): "dataset",
    }  # fmt: skip


def test_the_sources_of_a_plan_keep_their_paths(model, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(model, [Path("in.txt")], Path("out"))
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["sources"] == [{"name": "in.txt", "kind": "text", "lines": 12}]
