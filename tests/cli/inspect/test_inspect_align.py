import json
import shutil

import pytest

from tests import commands
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.text.pharaoh import parse_links

LINES = ["A man sleeps.", "", "Two dogs run in the snow.", "  ", "A woman and a dog."]
SENTENCES = ["Un homme dort.", "x", "Deux chiens courent", "", "Une femme et un chien ."]


def run(*arguments, stdin=None, command="inspect-align"):
    return commands.run(command, *arguments, stdin=stdin)


@pytest.fixture
def files(tmp_path):
    texts = {
        "source": LINES,
        "target": SENTENCES,
        "gold": ["0-0 1-1 2?2", "", "0-0 1-1 2-2 2?1", "", "0-0 1-1 4-4"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def own_model(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model")


def pairs(files):
    return ["--source", files / "source", "--target-file", files / "target"]


def test_every_line_has_its_line_of_links_between_its_words(model, files):
    result = run(model, *pairs(files))
    assert result.exit_code == 0
    found = [parse_links(line, "x").sure for line in result.stdout.removesuffix("\n").split("\n")]
    assert [bool(links) for links in found] == [True, False, True, False, True]
    for links, source, target in zip(found, LINES, SENTENCES, strict=True):
        assert {t for _, t in links} == (set(range(len(target.split()))) if links else set())
        assert all(s < len(source.split()) for s, _ in links)
    assert result.stderr.splitlines() == [
        "computing on cpu in float32",
        "aligning by cross.0 (default); find and store the best heads with --gold FILE --save",
    ]
    assert run(model, *pairs(files), "--buffer-lines", 1).stdout == result.stdout


def test_options_reach_the_links(model, files):
    plain = run(model, *pairs(files)).stdout
    assert run(model, *pairs(files), "--heads", "cross.0.1").stdout != plain
    assert run(model, *pairs(files), "--convention", "shift").stdout != plain
    every = run(model, *pairs(files), "--threshold", "0").stdout.splitlines()[0]
    assert len(every.split()) == 9
    assert run(model, *pairs(files), "--threshold", "1").stdout == "\n" * 5


def test_two_directions_are_joined(model, files):
    both = [*pairs(files), "--reverse", model]
    union, common = (
        [
            parse_links(line, "x").sure
            for line in run(model, *both, "--symmetrize", m).stdout.split("\n")
        ]
        for m in ("union", "intersection")
    )
    forward = [parse_links(line, "x").sure for line in run(model, *pairs(files)).stdout.split("\n")]
    assert all(c <= f <= u for c, f, u in zip(common, forward, union, strict=True))
    back = run(model, "--source", files / "target", "--target-file", files / "source").stdout
    reverse = [{(s, t) for t, s in parse_links(line, "x").sure} for line in back.split("\n")]
    assert union == [f | r for f, r in zip(forward, reverse, strict=True)]


def test_every_head_and_layer_is_scored_and_the_best_is_stored(own_model, files):
    gold = [*pairs(files), "--gold", files / "gold"]
    result = run(own_model, *gold, "--save")
    assert result.exit_code == 0
    records = [json.loads(line) for line in result.stdout.splitlines()]
    names = ["cross.0.0", "cross.0.0", "cross.0.1", "cross.0.1", "cross.0", "cross.0"]
    assert [r["id"] for r in records] == [*names, "diagonal", "one-link"]
    assert [r["convention"] for r in records] == ["naive", "shift"] * 3 + [None] * 2
    best = min(records[:-2], key=lambda r: r["aer"])
    stored = load_model_directory(own_model).info.alignment
    assert (stored.heads, stored.convention) == (best["id"], best["convention"])
    assert f"stored {best['id']} ({best['convention']}), AER {best['aer']:.1f}" in result.stderr
    # what is stored is used, and scores as was said
    assert f"{best['id']} ({best['convention']}, stored)" in run(own_model, *pairs(files)).stderr
    again = run(own_model, *gold, "--heads", best["id"], "--convention", best["convention"])
    assert json.loads(again.stdout.splitlines()[0]) == best
    table = run(own_model, *gold, "--format", "text").stdout
    assert f"best: {best['id']} ({best['convention']})" in table
    tsv = run(own_model, *gold, "--format", "tsv").stdout.splitlines()
    assert len(tsv) == 9
    both = run(own_model, *gold, "--reverse", own_model).stdout.splitlines()
    assert [json.loads(line)["id"] for line in both][:3] == ["forward", "reverse", "intersection"]


def test_words_can_be_those_of_a_tokenized_form(model, files):
    (files / "tok").write_text(
        "A man sleep s.\n\nTwo dogs run in the snow .\n\nA woman and a dog .\n"
    )
    result = run(model, *pairs(files), "--source-words", files / "tok", "--threshold", "0")
    assert "3-2" in result.stdout.splitlines()[0].split()


def test_a_stored_choice_that_is_not_there_is_an_error_of_one_line(own_model):
    config = json.loads((own_model / "config.json").read_text())
    config["alignment"] = {"heads": "cross.7", "convention": "shift"}
    (own_model / "config.json").write_text(json.dumps(config))
    result = run(own_model, "A man")
    assert result.exit_code == 2
    assert "run inspect-align --save again" in result.stderr.splitlines()[-1]


def test_translations_come_with_the_alignments_of_inspect_align(model):
    text = "\n".join([*LINES, "long words and dogs " * 30]) + "\n"
    plain = run(model, "--format", "tsv", stdin=text, command="translate").stdout
    output = run(
        model, "--format", "tsv", "--alignments", "pharaoh", stdin=text, command="translate"
    ).stdout
    rows = [line.split("\t") for line in output.removesuffix("\n").split("\n")]
    assert "".join("\t".join(row[:4]) + "\n" for row in rows) == plain
    assert "".join(f"{row[4]}\n" for row in rows) == run(model, stdin=text).stdout
    last = parse_links(rows[-1][4], "x").sure  # translated in parts: all are counted on
    assert {t for _, t in last} == set(range(len(rows[-1][2].encode().split())))
    assert max(s for s, _ in last) > 60


def test_every_hypothesis_has_its_alignment_links_or_weights(model):
    options = ["A man", "--n-best", 3, "--alignments", "soft", "--quiet"]
    record = json.loads(run(model, *options, "--format", "jsonl", command="translate").stdout)
    for hypothesis in record["hypotheses"]:
        assert len(hypothesis["alignment"]) == len(hypothesis["translation"].encode().split())
        assert all(abs(sum(row) - 1) < 1e-3 and len(row) == 3 for row in hypothesis["alignment"])
    assert record["alignment"] == record["hypotheses"][0]["alignment"]
    moses = run(model, *options, "--format", "moses", command="translate").stdout.splitlines()
    assert all(line.count(" ||| ") == 4 for line in moses)
