"""The options of the search, as far as the command line matters to them."""

import json

import pytest

from tests import commands

LINES = b"A man sleeps.\nTwo dogs run in the snow.\nthe street\n"


def run(*arguments, stdin=LINES):
    return commands.run(*arguments, stdin=stdin)


def test_sampling_depends_on_the_seed_and_the_line_alone(model):
    options = ["--sampling", "--top-k", 20, "--temperature", 0.8]
    expected = run("translate", model, *options)
    assert expected.exit_code == 0, expected.stderr
    for more in (["--buffer-lines", 1], ["--batch-tokens", 1], ["--n-best", 1]):
        assert run("translate", model, *options, *more).stdout == expected.stdout
    assert run("translate", model, *options, "--seed", 2).stdout != expected.stdout


def test_token_scores_and_flags_are_in_jsonl_on_request(model):
    plain = run("translate", model, "--format", "jsonl")
    done = run("translate", model, "--format", "jsonl", "--token-scores", "--flags")
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
    done = run("translate", model, *options, stdin=stdin)
    found = [json.loads(line)["translation"] for line in done.stdout.splitlines()]
    assert not found[0].startswith("Two dogs")
    assert found[1].startswith("Two dogs")


def test_distinct_texts_and_risk_choose_among_the_candidates(model):
    options = ["--format", "jsonl", "--n-best", 3, "--distinct-texts"]
    done = run("translate", model, *options, "--sampling", "--risk", "chrf", "--candidates", 8)
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
    done = run("translate", model, *options, "--glossary", glossary, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not any("unsatisfied" in record for record in found), done.stdout
    texts = [record["translation"] for record in found]
    assert "the street" in texts[0]
    assert "in the" in texts[1]
    assert "snow" not in texts[1]
    assert "the street" not in texts[2]
    assert all("A woman" in text for text in texts[:3])
    assert texts[3] == ""


def test_a_demand_on_a_blank_line_is_reported(model):
    stdin = json.dumps({"source": " ", "required": ["snow"], "banned": ["man"]}).encode()
    done = run("translate", model, "--input-format", "jsonl", "--format", "jsonl", stdin=stdin)
    record = json.loads(done.stdout)
    assert (record["translation"], record["unsatisfied"]) == ("", ["snow"])


def test_unsatisfied_demands_are_reported_with_their_line(model):
    record = {"source": "A man", "required": ["snow " * 20]}
    stdin = (json.dumps(record) + "\n").encode()
    options = ["--input-format", "jsonl", "--format", "jsonl"]
    done = run("translate", model, *options, stdin=stdin)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["unsatisfied"] == [("snow " * 20).strip()]
    assert "1 line without a required phrase" in done.stderr


def test_an_ensemble_of_a_model_with_itself_is_the_model(model, tmp_path):
    expected = run("translate", model)
    done = run("translate", model, "--ensemble", model, "--ensemble-weights", "2,1")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == expected.stdout
