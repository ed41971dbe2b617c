import json
import shutil

import numpy as np
import pytest

from tests.commands import output_of, record_of, records_of, run
from tests.models import LINES, save_random
from tformer_cli import load
from tformer_cli.artifacts.shortlist_file import save_frequencies
from tformer_cli.fast.native import library


def test_a_form_feed_is_a_blank_line_and_a_word_without_end_is_cut(model):
    done = run("translate", model, stdin=b"A man\n\x0c\n" + b"q" * 5000 + b"\nlast")
    lines = done.stdout.split("\n")
    assert [n for n, line in enumerate(lines) if not line] == [1, 4]
    assert "1 line longer than the model takes; read in parts" in done.stderr


def test_source_words_that_the_model_does_not_know_are_told_once(tmp_path):
    save_random(
        tmp_path / "words", LINES, algorithm="word", vocab_size=100,
        decoding={"beam_size": 1, "max_length": 3}, max_positions=40,
    )  # fmt: skip
    known = run("translate", tmp_path / "words", LINES[0], "", "-q")
    assert (known.exit_code, known.stderr) == (0, "")
    done = run("translate", tmp_path / "words", f"{LINES[0]} xyzzy", "", "plugh", "-q")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 3
    assert done.stderr == (
        "warning: 2 words or characters that the model does not know; it read <unk> there\n"
    )


def test_arguments_are_translated_without_a_report(model):
    told = run("translate", model, "A man", "Two dogs")
    assert told.stderr.startswith("computing on c")
    assert told.stderr.endswith(" in float32\n")


def test_without_kernels_it_translates_alike_with_one_note(model, monkeypatch):
    expected = run("translate", model, "--device", "cpu", *LINES).stdout

    def refuse():
        raise library.KernelsUnavailable("they are not built")

    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "find_library", refuse)
    for options, told in (
        ([], "without compiled kernels, PyTorch computes more slowly: they are not built\n"),
        (["--quiet"], ""),
    ):
        monkeypatch.setattr(library, "_found", None)
        done = run("translate", model, "--device", "cpu", "--buffer-lines", "1", *LINES, *options)
        assert (done.exit_code, done.stdout) == (0, expected)
        assert done.stderr.removeprefix("computing on cpu in float32\n") == told


def test_an_unknown_level_of_the_kernels_is_an_error(model, monkeypatch):
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "_found", None)
    monkeypatch.setenv(library.LEVEL, "v3")
    done = run("translate", model, "--device", "cpu", *LINES)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(
        'error: TFORMER_NATIVE_LEVEL: "v3" is not a level; choose one of '
    )


def test_an_argument_may_be_blank_or_hold_several_lines(model):
    assert output_of("translate", model, "") == "\n"
    given = ("translate", model, "A man", "Two dogs")
    assert output_of(*given) == output_of(*given[:2], "A man\nTwo dogs\n")
    assert output_of(*given) == output_of(*given[:2], "-", stdin=b"A man\nTwo dogs\n")


def test_jsonl_in_and_out_passes_fields_through(model):
    records = [{"id": 7, "source": "A man"}, {"id": 8, "source": "", "tags": ["é"]}]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    options = ["--input-format", "jsonl", "--format", "jsonl", "--n-best", "2"]
    found = records_of("translate", model, *options, stdin=stdin)
    assert [(r["id"], r["index"], r["source"]) for r in found] == [(7, 0, "A man"), (8, 1, "")]
    assert found[1]["tags"] == ["é"]
    assert [len(r["hypotheses"]) for r in found] == [2, 1]
    assert found[0]["translation"] == found[0]["hypotheses"][0]["translation"]


def test_nasty_jsonl_still_gives_a_line_for_a_line(model):
    stdin = b'{"source": "a\\nb\\t\\ud800", "k": "\\udc00"}\n\n\xef\xbb\xbf{"source": "x"}\n'
    options = ("--input-format", "jsonl", "--format", "jsonl")
    records = records_of("translate", model, *options, stdin=stdin)
    assert [r["source"] for r in records] == ["a\nb\t\ufffd", "", "x"]
    assert records[0]["k"] == "\ufffd"
    rows = run("translate", model, "--input-format", "jsonl", "--format", "tsv", stdin=stdin)
    assert [len(line.split("\t")) for line in rows.stdout.split("\n")[:-1]] == [4, 4, 4]


@pytest.mark.parametrize(("output_format", "separator"), [("tsv", "\t"), ("moses", " ||| ")])
def test_several_translations_need_a_format_that_separates_them(model, output_format, separator):
    done = run("translate", model, "A man", "b", "--n-best", "2", "--format", output_format)
    rows = [line.split(separator) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1"]
    assert {len(row) for row in rows} == {4}


def test_sentences_of_a_line_are_translated_one_by_one(model):
    sentences, options = ["A man sleeps.", "Two dogs run."], ["--beam-size", "1", "--quiet"]
    alone = run("translate", model, *options, stdin="\n".join(sentences).encode()).stdout
    line = "  ".join(sentences).encode()
    split = run("translate", model, *options, "--split-sentences", "rule", stdin=line)
    assert split.stdout.rstrip("\n") == "  ".join(alone.splitlines())
    assert split.stderr == ""


def test_lines_are_split_where_the_model_was_trained_on_sentences(model, several_sentences):
    line = f"{LINES[0]}  {LINES[1]}"
    arguments = ("translate", model, line, "", LINES[3])
    whole = run(*arguments)
    assert "sentences" not in whole.stderr  # it is not known what the model was trained on
    several_sentences(model, 0.1)
    split = run(*arguments)
    assert split.stdout == run(*arguments, "--split-sentences", "rule").stdout != whole.stdout
    assert split.stdout.count("\n") == 3
    said = "1 line of several sentences, translated one by one; --split-sentences none translates"
    assert split.stderr.splitlines()[1:] == [f"{said} lines whole"]
    assert run(*arguments, "-q").stderr == ""
    assert run(*arguments, "--split-sentences", "none").stdout == whole.stdout
    several_sentences(model, 0.5)
    assert run(*arguments).stdout == whole.stdout


def test_every_command_splits_the_same_lines(model, several_sentences, tmp_path):
    several_sentences(model, 0.0)
    source = tmp_path / "a.en"
    source.write_text(f"{LINES[0]} {LINES[1]}\n\n{LINES[3]}\n")
    expected = run("translate", model, "-i", source).stdout
    assert [one.text for one in load(model).translate(source.read_text().split("\n")[:3])] == (
        expected.split("\n")[:3]
    )
    given = ("--source", source, "--reference", source, "-o", tmp_path / "a.fr")
    scored = run("evaluate", model, *given)
    assert (tmp_path / "a.fr").read_text() == expected
    assert "1 line of several sentences" in scored.stderr
    done = run("translate-corpus", model, source, "-o", tmp_path / "out", "--workers", "1")
    assert done.exit_code == 0, done.stderr
    assert "1 line of several sentences" in done.stderr
    assert expected in [file.read_text() for file in (tmp_path / "out").iterdir()]


def test_alignments_of_sentences_are_of_the_whole_line(model, several_sentences):
    several_sentences(model, 0.0)
    line = f"{LINES[0]}  {LINES[1]}"
    options = ("--format", "jsonl", "--alignments", "soft")
    rows = record_of("translate", model, line, *options)["alignment"]
    alone = records_of("translate", model, *LINES[:2], *options)
    first, second = (one["alignment"] for one in alone)
    n_first, n_second = len(first[0]) - 1, len(second[0]) - 1
    assert rows == [
        *([*row[:-1], *[0.0] * n_second, row[-1]] for row in first),
        *([0.0] * n_first + row for row in second),
    ]


def test_lines_of_unseen_words_are_told_and_flagged(model, tmp_path):
    known = shutil.copytree(model, tmp_path / "known")
    vocab_size = json.loads((known / "config.json").read_text())["vocab_size"]
    save_frequencies(known, np.ones(vocab_size, np.int64), ["a", "man", "sleeps"])
    arguments = ("A man sleeps.", "", "Hello world", "Hello dear man", "--quiet")
    assert run("translate", model, *arguments).stderr == ""  # it does not know its training
    done = run("translate", known, *arguments, "--format", "jsonl", "--flags")
    assert done.stderr == (
        "warning: 2 lines mostly of words that the model was not trained on (line 3: Hello, world);"
        " do not trust the translation\n"
    )
    flags = [json.loads(line)["flags"] for line in done.stdout.splitlines()]
    assert ["unseen" in one for one in flags] == [False, False, True, True]


def test_markup_is_told_once(model, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("A man\n<p>Two <b>dogs</b></p>\n<br/>\n")
    done = run("translate", model, "-i", page, "--quiet")
    assert done.stdout.count("\n") == 3
    assert done.stderr == (
        "warning: line 2 has tags of HTML or XML (<p>), which are translated like words; documents "
        "are not supported: remove the tags first, such as with sed 's/<[^>]*>//g', and give one "
        "sentence a line\n"
    )
