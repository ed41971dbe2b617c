"""The command translate: streams, options of the search, parts of the input."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tests import commands
from tests.commands import output_of, record_of, records_of, run
from tests.models import LINES, save_random
from tformer_cli import load
from tformer_cli.artifacts.shortlist_file import save_frequencies
from tformer_cli.cli.app import app
from tformer_cli.cli.commands.translate import parse_shard
from tformer_cli.errors import UsageError
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
    result = run("translate", model, "A man", "Two dogs")
    assert result.stderr.startswith("computing on c")
    assert result.stderr.endswith(" in float32\n")


def test_without_kernels_it_translates_alike_with_one_note(model, monkeypatch):
    expected = run("translate", model, "--device", "cpu", *LINES).stdout

    def refuse():
        raise library.KernelsUnavailable("they are not built")

    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "find_library", refuse)
    for options, message in (
        ([], "without compiled kernels, PyTorch computes more slowly: they are not built\n"),
        (["--quiet"], ""),
    ):
        monkeypatch.setattr(library, "_library", None)
        done = run("translate", model, "--device", "cpu", "--buffer-lines", "1", *LINES, *options)
        assert (done.exit_code, done.stdout) == (0, expected)
        assert done.stderr.removeprefix("computing on cpu in float32\n") == message


def test_an_unknown_level_of_the_kernels_is_an_error(model, monkeypatch):
    monkeypatch.delenv(library.SWITCH, raising=False)
    monkeypatch.setattr(library, "_library", None)
    monkeypatch.setenv(library.LEVEL, "v3")
    done = run("translate", model, "--device", "cpu", *LINES)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(
        'error: TFORMER_NATIVE_LEVEL: "v3" is not a level; choose one of '
    )


def test_an_argument_may_be_blank_or_hold_several_lines(model):
    assert output_of("translate", model, "") == "\n"
    arguments = ("translate", model, "A man", "Two dogs")
    assert output_of(*arguments) == output_of(*arguments[:2], "A man\nTwo dogs\n")
    assert output_of(*arguments) == output_of(*arguments[:2], "-", stdin=b"A man\nTwo dogs\n")


def test_jsonl_in_and_out_passes_fields_through(model):
    records = [{"id": 7, "source": "A man"}, {"id": 8, "source": "", "tags": ["é"]}]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    options = ["--input-format", "jsonl", "--format", "jsonl", "--n-best", "2"]
    results = records_of("translate", model, *options, stdin=stdin)
    assert [(r["id"], r["index"], r["source"]) for r in results] == [(7, 0, "A man"), (8, 1, "")]
    assert results[1]["tags"] == ["é"]
    assert [len(r["hypotheses"]) for r in results] == [2, 1]
    assert results[0]["translation"] == results[0]["hypotheses"][0]["translation"]


def test_fields_with_names_of_the_output_are_kept_apart(model):
    options = ("--input-format", "jsonl", "--format", "jsonl", "-q")
    fields = {"source": "A man", "index": "mine", "unsatisfied": [], "flags": 3, "id": 7}
    null = dict.fromkeys(("target_prefix", "required", "banned"))
    lines = [json.dumps(fields), json.dumps({"source": "A man", **null})]
    done = run("translate", model, *options, stdin="\n".join(lines))
    found, plain = map(json.loads, done.stdout.splitlines())
    assert found["input_fields"] == {"index": "mine", "unsatisfied": [], "flags": 3}
    assert (found["index"], found["id"], found["translation"]) == (0, 7, plain["translation"])
    assert not {"unsatisfied", "flags"} & found.keys()
    assert "input_fields" not in plain
    assert done.stderr.startswith("warning: 1 line with their own fields")
    # the output of one run is the input of another
    again = records_of("translate", model, *options, stdin=done.stdout)
    assert again[1]["input_fields"] == {
        name: plain[name] for name in ("index", "translation", "score", "log_probability")
    }
    rows = run("translate", model, *options[:2], "--format", "tsv", "-q", stdin=lines[0])
    assert rows.stderr == ""


def test_fewer_translations_than_asked_for_are_told_with_their_number(model):
    options = ("--n-best", 4, "--beam-size", 4, "--diversity-groups", 4, "--format", "tsv", "-q")
    same = run("translate", model, *options, "--diversity-penalty", 0, "A man", "", "A dog")
    assert len(same.stdout.splitlines()) == 3
    assert same.stderr == (
        "warning: 2 lines with fewer than --n-best 4: the search found no others that differ\n"
    )
    assert run("translate", model, "A man", "", "--n-best", 4, *options[-3:]).stderr == ""


def test_nasty_jsonl_still_gives_a_line_for_a_line(model):
    stdin = b'{"source": "a\\nb\\t\\ud800", "k": "\\udc00"}\n\n\xef\xbb\xbf{"source": "x"}\n'
    options = ("--input-format", "jsonl", "--format", "jsonl")
    records = records_of("translate", model, *options, stdin=stdin)
    assert [r["source"] for r in records] == ["a\nb\t\ud800", "", "x"]
    assert records[0]["k"] == "\udc00"
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
    note = "1 line of several sentences, translated one by one; --split-sentences none translates"
    assert split.stderr.splitlines()[1:] == [f"{note} lines whole"]
    assert run(*arguments, "-q").stderr == ""
    assert run(*arguments, "--split-sentences", "none").stdout == whole.stdout
    several_sentences(model, 0.5)
    assert run(*arguments).stdout == whole.stdout


def test_every_command_splits_the_same_lines(model, several_sentences, tmp_path):
    several_sentences(model, 0.0)
    source = tmp_path / "a.en"
    source.write_text(f"{LINES[0]} {LINES[1]}\n\n{LINES[3]}\n")
    expected = run("translate", model, "-i", source).stdout
    assert [
        translation.text
        for translation in load(model).translate(source.read_text().split("\n")[:3])
    ] == (expected.split("\n")[:3])
    arguments = ("--source", source, "--reference", source, "-o", tmp_path / "a.fr")
    scored = run("evaluate", model, *arguments)
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
    first, second = (record["alignment"] for record in alone)
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
    assert ["unseen" in flag for flag in flags] == [False, False, True, True]


def test_markup_is_told_once(model, tmp_path):
    page = tmp_path / "page"
    page.write_text("A man\n<p>Two <b>dogs</b></p>\n<br/>\n")
    done = run("translate", model, "-i", page, "--quiet")
    assert done.stdout.count("\n") == 3
    assert done.stderr == (
        "warning: line 2 has tags of HTML or XML (<p>), which are translated as words; `tformer "
        "translate --document html` keeps them\n"
    )


TYPED = b"A man sleeps.\nTwo dogs run in the snow.\nthe street\n"


def run_typed(*arguments, stdin=TYPED):
    return commands.run(*arguments, stdin=stdin)


def test_sampling_depends_on_the_seed_and_the_line_alone(model):
    options = ["--sampling", "--top-k", 20, "--temperature", 0.8]
    expected = run_typed("translate", model, *options)
    assert expected.exit_code == 0, expected.stderr
    for more in (["--buffer-lines", 1], ["--batch-tokens", 1], ["--n-best", 1]):
        assert run_typed("translate", model, *options, *more).stdout == expected.stdout
    assert run_typed("translate", model, *options, "--seed", 2).stdout != expected.stdout


def test_token_scores_and_flags_are_in_jsonl_on_request(model):
    plain = run_typed("translate", model, "--format", "jsonl")
    done = run_typed("translate", model, "--format", "jsonl", "--token-scores", "--flags")
    for before, line in zip(plain.stdout.splitlines(), done.stdout.splitlines(), strict=True):
        record = json.loads(line)
        steps = record.pop("token_log_probabilities")
        assert len(steps) == len(record.pop("token_ids")) + 1
        assert sum(steps) == pytest.approx(record["log_probability"])
        assert set(record.pop("flags")) <= {"unfinished", "repetition", "length", "improbable"}
        assert record == json.loads(before)


def test_a_target_prefix_comes_with_its_line(model):
    records = [{"source": "A man"}, {"source": "A man", "target_prefix": "Two dogs"}]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    options = ["--input-format", "jsonl", "--format", "jsonl"]
    done = run_typed("translate", model, *options, stdin=stdin)
    results = [json.loads(line)["translation"] for line in done.stdout.splitlines()]
    assert not results[0].startswith("Two dogs")
    assert results[1].startswith("Two dogs")


def test_distinct_texts_and_risk_choose_among_the_candidates(model):
    options = ["--format", "jsonl", "--n-best", 3, "--distinct-texts"]
    done = run_typed(
        "translate", model, *options, "--sampling", "--risk", "chrf", "--candidates", 8
    )
    assert done.exit_code == 0, done.stderr
    for line in done.stdout.splitlines():
        texts = [h["translation"] for h in json.loads(line)["hypotheses"]]
        assert len(set(texts)) == len(texts)


def test_constraints_of_a_glossary_and_a_line_land_on_their_own_line(model, tmp_path):
    glossary = tmp_path / "glossary.tsv"
    glossary.write_text("dogs\tthe street\n\nman\tsnow\tban\n\tA woman\n")
    records = [
        {"source": "Two dogs run"},
        {"source": "A man sleeps.", "required": ["in the"], "banned": ["street"]},
        {"source": "dogsled", "id": 7},
        {"source": ""},
    ]
    stdin = "".join(json.dumps(record) + "\n" for record in records).encode()
    options = ["--input-format", "jsonl", "--format", "jsonl", "--max-length", 30]
    done = run_typed("translate", model, *options, "--glossary", glossary, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert not any("unsatisfied" in record for record in results), done.stdout
    texts = [record["translation"] for record in results]
    assert "the street" in texts[0]
    assert "in the" in texts[1]
    assert "snow" not in texts[1]
    assert "the street" not in texts[2]
    assert all("A woman" in text for text in texts[:3])
    assert texts[3] == ""


def test_a_demand_on_a_blank_line_is_reported(model):
    stdin = json.dumps({"source": " ", "required": ["snow"], "banned": ["man"]}).encode()
    done = run_typed(
        "translate", model, "--input-format", "jsonl", "--format", "jsonl", stdin=stdin
    )
    record = json.loads(done.stdout)
    assert (record["translation"], record["unsatisfied"]) == ("", ["snow"])


def test_unsatisfied_demands_are_reported_with_their_line(model):
    record = {"source": "A man", "required": ["snow " * 20]}
    stdin = (json.dumps(record) + "\n").encode()
    options = ["--input-format", "jsonl", "--format", "jsonl"]
    done = run_typed("translate", model, *options, stdin=stdin)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["unsatisfied"] == [("snow " * 20).strip()]
    assert "1 line without a required phrase" in done.stderr


def test_an_ensemble_of_a_model_with_itself_is_the_model(model, tmp_path):
    expected = run_typed("translate", model)
    done = run_typed("translate", model, "--ensemble", model, "--ensemble-weights", "2,1")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == expected.stdout


NUMBERED = [f"A dog and {'a man ' * (i % 4)}sleeps." for i in range(10)]


def invoke_translate(*arguments, **options):
    return CliRunner().invoke(app, ["translate", *map(str, arguments)], **options)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "in.txt"
    file.write_text("\n".join(NUMBERED) + "\n")
    return file


@pytest.mark.parametrize("text", ["", "3", "3/3", "-1/2", "1/0", "a/b"])
def test_other_texts_than_shards_are_refused(text):
    with pytest.raises(UsageError, match="is not I/N"):
        parse_shard(text)


def test_joined_shards_are_the_whole(model, source):
    whole = invoke_translate(model, "-i", source, "--format", "tsv").stdout
    options = ("-i", source, "--format", "tsv", "--buffer-lines", 2)
    parts = [
        invoke_translate(model, *options, "--shard", f"{index}/3").stdout for index in range(3)
    ]
    assert "".join(parts) == whole


def test_a_stopped_translation_resumes(model, source, tmp_path, monkeypatch):
    options = ("-i", source, "--format", "jsonl", "--n-best", 2, "--buffer-lines", 3)
    whole = invoke_translate(model, *options).stdout
    output = tmp_path / "out.jsonl"
    from tformer_cli.search.translator import Translator

    translate = Translator.translate

    def failing(self, lines, first_index=0, *rest, **more):
        if first_index >= 6:
            raise KeyboardInterrupt
        return translate(self, lines, first_index, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", failing)
        assert invoke_translate(model, *options, "--resume", "-o", output).exit_code != 0
    assert not output.exists()
    other = invoke_translate(model, *options, "--beam-size", 2, "--resume", "-o", output)
    assert other.exit_code == 2
    assert "started with a different settings" in other.stderr
    again = invoke_translate(model, *options, "--resume", "-o", output)
    assert again.exit_code == 0
    assert "lines done" in again.stderr
    assert output.read_text() == whole
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.txt", "out.jsonl"]


def test_a_bad_line_of_a_shard_has_its_number_in_the_file(model, tmp_path):
    file = tmp_path / "in.jsonl"
    file.write_text('{"source": "A dog"}\n' * 3 + "no JSON\n")
    result = invoke_translate(model, "-i", file, "--input-format", "jsonl", "--shard", "1/2")
    assert result.exit_code == 2
    assert "in.jsonl, line 4: " in result.stderr


def test_resuming_needs_files(model):
    result = invoke_translate(model, "--resume", input="a\n")
    assert result.exit_code == 2
    assert "give --input and --output" in result.stderr


def test_a_slow_pipe_is_answered_in_time(model):
    command = [sys.executable, "-m", "tformer_cli", "translate", str(model), "--max-wait", "0.05"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    began = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        process.stdin.write(b"A dog\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # without --max-wait this would not return
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    assert time.monotonic() - began < 120
