import json

import pytest

from tests.commands import run

SOURCE = ["A man sleeps.", "Two dogs run in the snow.", "", "the street"]
TARGET = ["Ein Mann schläft.", "Zwei Hunde rennen im Schnee.", "", "die Straße"]


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("source", SOURCE), ("target", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ["--source", tmp_path / "source", "--reference", tmp_path / "target"]


def records(done):
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_json_lines_tell_of_every_head_the_curve_and_the_pruned_model(model, texts, tmp_path):
    pruned = tmp_path / "pruned"
    options = ["--heads", "self,cross.0.1", "--scores", 2, "--write-pruned", pruned, "--keep", 3]
    found = records(run("inspect-ablate", model, *texts, *options))
    whole, *others, last = found
    assert {record["schema"] for record in found} == {"tformer.ablation/2"}
    assert (whole["record"], whole["lines"], last["record"]) == ("ablation", 4, "pruned")
    heads = [record for record in others if record["record"] == "head"]
    curve = [record for record in others if record["record"] == "curve"]
    names = ["enc.0.0", "enc.0.1", "enc.1.0", "enc.1.1", "dec.0.0", "dec.0.1", "cross.0.1"]
    assert [head["id"] for head in heads] == names
    assert sorted(head["rank"] for head in heads) == list(range(1, 8))
    assert [bool(head["scores"]) for head in heads] == [head["loss_rank"] <= 2 for head in heads]
    by_loss = sorted(heads, key=lambda head: head["loss_rank"])
    deltas = [head["delta_loss"] for head in by_loss]
    assert deltas == sorted(deltas, reverse=True)
    assert curve[0]["loss"] == whole["loss"] == last["before"]["loss"]
    by_rank = {head["rank"]: head for head in heads}
    assert [point["id"] for point in curve[1:]] == [by_rank[k]["id"] for k in range(7, 0, -1)]
    assert curve[1]["delta_loss"] == pytest.approx(by_rank[7]["delta_loss"], abs=2e-5)
    assert curve[4]["loss"] == pytest.approx(last["after"]["loss"], abs=2e-5)
    assert last["removed"] == [name for name in names if name not in {
        by_rank[k]["id"] for k in (1, 2, 3)
    }]  # fmt: skip
    assert last["after"]["n_heads"] == last["before"]["n_heads"] - 4
    assert last["after"]["n_bytes"] < last["before"]["n_bytes"]


def test_a_pruned_directory_translates_as_the_gated_model_and_works_everywhere(
    model, texts, tmp_path
):
    pruned, selection = tmp_path / "pruned", "enc.0,dec.0,cross.0.0"
    options = ["--no-curve", "--heads", "cross", "--write-pruned", pruned, "--prune", selection]
    assert records(run("inspect-ablate", model, *texts, *options))[-1]["after"]["n_heads"] == 3
    gated = run("translate", model, "--heads", "!enc.0,!dec.0,!cross.0.0", *SOURCE, "--quiet")
    alone = run("translate", pruned, *SOURCE, "--quiet")
    assert gated.stdout == alone.stdout
    assert gated.stdout != run("translate", model, *SOURCE, "--quiet").stdout
    everywhere = run("translate", model, "--heads", "*", *SOURCE, "--quiet")
    assert everywhere.stdout == run("translate", model, *SOURCE, "--quiet").stdout
    scores = [
        run("evaluate", directory, *texts, "--format", "json", *more)
        for directory, more in ((model, ["--heads", "enc.1,cross.0.1"]), (pruned, []))
    ]
    losses = [json.loads(done.stdout)["loss"] for done in scores]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    (shown,) = records(run("inspect-heads", pruned, "A man sleeps."))
    assert [head["id"] for head in shown["heads"]] == ["enc.1.0", "enc.1.1", "cross.0.0"]
    assert run("inspect-heads", pruned, "--format", "text", "A man").exit_code == 0
    config = json.loads((pruned / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["encoder_heads"] == [0, 2]
    config["model"]["encoder_heads"] = [1, 2]
    (pruned / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert (
        "restore the weights and config.json of one model" in run("translate", pruned, "a").stderr
    )


def test_the_table_shows_every_head_and_is_the_same_each_time(model, texts):
    tables = [run("inspect-ablate", model, *texts, "--format", "text", "-q") for _ in range(2)]
    assert tables[0].exit_code == 0, tables[0].stderr
    assert tables[0].stdout == tables[1].stdout
    assert "cross-attention" in tables[0].stdout
    assert "heads removed" in tables[0].stdout
    assert tables[0].stderr == ""


def test_the_heads_without_which_a_sentence_is_translated_otherwise(model):
    text = SOURCE[1]
    whole, *others = records(run("inspect-ablate", model, "--changes", text, "--heads", "cross"))
    assert [record["id"] for record in others] == ["cross.0.0", "cross.0.1", "cross.0"]
    for record in others:
        off = run("translate", model, "--heads", f"!{record['id']}", "--engine", "torch", text)
        assert off.stdout.rstrip("\n") == record["translation"]
        assert record["changes"] == (record["translation"] != whole["translation"])
    shown = run(
        "inspect-ablate", model, "--changes", text, "--heads", "cross", "--format", "text"
    ).stdout.splitlines()
    changing = [f"!{record['id']}" for record in others if record["changes"]]
    assert [line.split()[0] for line in shown[1:-1]] == changing
    assert shown[-1].startswith(f"{len(others) - len(changing)} other head")
