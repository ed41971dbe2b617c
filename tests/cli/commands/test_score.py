import json
import shutil

import pytest

from tests.commands import lines_of, output_of, records_of, run
from tformer_cli.artifacts.model_directory import load_model_directory

SOURCE = ["A man sleeps.", "", "Two dogs run in the snow.", "word " * 60]


@pytest.fixture
def files(tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in SOURCE))
    target.write_text("the street\nA\na\tdog\nx\n")
    return source, target


def test_the_formats_agree(model, files):
    source, target = files
    options = ["score", model, "--source", source, "--target-file", target, "--quiet"]
    plain = lines_of(*options)
    records = records_of(*options, "--format", "jsonl")
    assert [f"{r['log_probability']:.6f}" for r in records] == plain
    for record in records:
        assert sum(record["token_log_probabilities"]) == pytest.approx(record["log_probability"])
        assert len(record["token_log_probabilities"]) == len(record["token_ids"]) + 1
    rows = [line.split("\t") for line in lines_of(*options, "--format", "tsv")]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert rows[2][2] == "a dog"
    assert rows[0][3] == plain[0]


def test_features_of_an_n_best_list_may_be_missing(model, files):
    for features in ("||| ", "|||  "):
        line = f"0 ||| the street {features}||| -1\n"
        options = ("--source", files[0], "--n-best-file", "-", "--quiet")
        found = output_of("score", model, *options, stdin=line)
        assert found.startswith("0 ||| the street ||| ForcedLogProbability= -")


def test_an_n_best_list_of_the_model_keeps_its_order_and_scores(model, files, tmp_path):
    source, nbest = tmp_path / "few.txt", tmp_path / "nbest"
    source.write_text("A man sleeps.\nTwo dogs\n")
    output_of("translate", model, "-i", source, "--n-best", 3, "--format", "moses", "-o", nbest)
    expected = [line.split(" ||| ") for line in nbest.read_text().splitlines()]
    nbest.write_text("".join(" ||| ".join(row) + "\n" for row in expected[:3][::-1] + expected[3:]))
    rows = lines_of("score", model, "--source", source, "--n-best-file", nbest)
    found = [line.split(" ||| ") for line in rows]
    assert len(found) == 6
    scores = [float(row[3]) for row in found]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert all(
        "LogProbability= -" in row[2] and "ForcedLogProbability= -" in row[2] for row in found
    )


def test_the_tokens_of_an_n_best_list_are_scored_however_the_text_is_cut(model, tmp_path):
    source, n_best = tmp_path / "few.txt", tmp_path / "n-best.jsonl"
    source.write_text("A man sleeps.\nTwo dogs\n")
    output_of("translate", model, "-i", source, "--n-best", 3, "--format", "jsonl", "-o", n_best)
    records = [json.loads(line) for line in n_best.read_text().splitlines()]
    letters = load_model_directory(model).tokenizer.target.with_dropout(["the dog"], [1], 1.0, 1)
    records[0]["hypotheses"][2] |= {"translation": "the dog", "token_ids": letters[0]}
    for record in records:
        record["hypotheses"].reverse()
    n_best.write_text("".join(json.dumps(record | {"id": 7}) + "\n" for record in records))
    done = run("score", model, "-i", source, "--n-best-file", n_best)
    assert done.exit_code == 0, done.stderr
    assert "BPE dropout" not in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in found] == [7, 7]
    for record, one in zip(records, found, strict=True):
        written = {tuple(h["token_ids"]): h["score"] for h in record["hypotheses"]}
        scores = {tuple(h["token_ids"]): h["score"] for h in one["hypotheses"]}
        own = [ids for ids in written if list(ids) != letters[0]]
        assert [scores[ids] for ids in own] == pytest.approx([written[ids] for ids in own])
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert one["translation"] == one["hypotheses"][0]["translation"]
        assert one["score"] == one["hypotheses"][0]["score"]
    assert scores.keys() == written.keys()
    # the same text cut by the tokenizer has another score, which is said of such a model
    recipe = "[tokenizer]\nbpe_dropout = 0.1\n[training]\nmax_steps = 1\n"
    copied = tmp_path / "copy"
    shutil.copytree(model, copied)
    (copied / "recipe.toml").write_text(f'[[data.train]]\nsource = "a"\ntarget = "b"\n{recipe}')
    for record in records:
        for hypothesis in record["hypotheses"]:
            del hypothesis["token_ids"]
    n_best.write_text("".join(json.dumps(record) + "\n" for record in records))
    done = run("score", copied, "-i", source, "--n-best-file", n_best)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("was trained with BPE dropout") == 1
    found = json.loads(done.stdout.splitlines()[0])["hypotheses"]
    (other,) = (h["score"] for h in found if h["translation"] == "the dog")
    first = run("score", model, "-i", source, "--n-best-file", "-", stdin="0 ||| the dog ||| 1\n")
    assert other == pytest.approx(float(first.stdout.split(" ||| ")[-1]), abs=1e-5)
