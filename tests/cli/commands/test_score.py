"""The command score: of translations, texts and labels."""

import json
import math
import shutil

import pytest
import torch

from tests.commands import lines_of, output_of, record_of, records_of, run
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

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


def test_a_separator_in_a_text_is_part_of_it_or_refused(model, files):
    options = ("score", model, "--source", files[0], "--n-best-file", "-", "--quiet")

    def score_line(text, rest):
        return run(*options, stdin=f"0 ||| {text} ||| {rest}\n")

    expected = score_line("the | | | street", "lm= -1 2 tm: 3 ||| -1 ||| 0-0 1-1=2")
    assert expected.stdout.startswith("0 ||| the | | | street ||| lm= -1 2 tm: 3 Forced")
    text = "the ||| street"
    target = files[1].with_name("one.txt")
    target.write_text(f"{text}\n")
    source = files[1].with_name("source.txt")
    source.write_text(f"{SOURCE[0]}\n")
    forced = lines_of("score", model, "-i", source, "--target-file", target, "-q")[0]
    for rest in ("lm= -1 ||| -1", "lm= -1 ||| -1e-5 ||| 0-0"):
        found = score_line(text, rest).stdout
        assert found.startswith(f"0 ||| the | | | street ||| lm= -1 ForcedLogProbability= {forced}")
    for rest in ("street ||| -1", "street", "lm= -1"):  # where two readings are as likely
        done = score_line(text, rest) if rest != "street" else score_line("the", rest)
        assert (done.exit_code, done.stdout) == (2, ""), rest
        assert "-, line 1: is not a line of an n-best list" in done.stderr


def test_a_field_of_a_hypothesis_replaces_none_of_its_line(model, files):
    hypotheses = [{"translation": "the street", "id": "a", "score": None}, {"translation": "dog"}]
    record = {"index": 0, "id": "line", "input_fields": {"index": 5}, "parts": None}
    options = ("score", model, "--source", files[0], "--n-best-file", "-", "--quiet")
    result = record_of(*options, stdin=json.dumps({**record, "hypotheses": hypotheses}))
    assert {name: result[name] for name in record} == record
    assert {"a", None} == {hypothesis.get("id") for hypothesis in result["hypotheses"]}
    alone = record_of(*options, stdin=json.dumps({**record, **hypotheses[1], "hypotheses": None}))
    assert alone["hypotheses"] is None
    assert alone["score"] in [hypothesis["score"] for hypothesis in result["hypotheses"]]


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
    assert [record["id"] for record in found] == [7, 7]
    for record, ranked in zip(records, found, strict=True):
        written = {tuple(h["token_ids"]): h["score"] for h in record["hypotheses"]}
        scores = {tuple(h["token_ids"]): h["score"] for h in ranked["hypotheses"]}
        own = [ids for ids in written if list(ids) != letters[0]]
        assert [scores[ids] for ids in own] == pytest.approx([written[ids] for ids in own])
        assert list(scores.values()) == sorted(scores.values(), reverse=True)
        assert ranked["translation"] == ranked["hypotheses"][0]["translation"]
        assert ranked["score"] == ranked["hypotheses"][0]["score"]
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


PLAIN = ["Two dogs run in the street", "", "zxqj ☃ zxqj", "A dog", "the snow " * 30]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in PLAIN))
    return path


def test_a_score_a_line_in_every_format(language_model, file):
    arguments = ("score", language_model, "-i", file, "-q")
    records = records_of(*arguments, "--format", "jsonl")
    assert [f"{r['log_probability']:.6f}" for r in records] == lines_of(*arguments)
    rows = lines_of(*arguments, "--format", "tsv")
    for row, record in zip(rows, records, strict=True):
        index, text, log_probability, bits = row.split("\t")
        assert (int(index), text) == (record["index"], record["text"])
        assert float(log_probability) == pytest.approx(record["log_probability"], abs=1e-6)
        assert float(bits) == pytest.approx(record["bits_per_byte"], abs=1e-6)
        n_bytes = len(record["text"].encode()) + 1
        expected = -record["log_probability"] / math.log(2) / n_bytes
        assert record["bits_per_byte"] == pytest.approx(expected)
        assert len(record["token_log_probabilities"]) == len(record["token_ids"]) + 1
        assert sum(record["token_log_probabilities"]) == pytest.approx(record["log_probability"])


@torch.inference_mode()
def test_they_are_the_models_own(language_model, file):
    directory = load_model_directory(language_model, tasks=("language-model",))
    for record in records_of("score", language_model, "-i", file, "-q", "--format", "jsonl")[:4]:
        ids = record["token_ids"]
        assert ids == directory.tokenizer.target.encode(record["text"])
        nothing = torch.tensor([[EOS_ID]])
        logits = directory.model(nothing, nothing == EOS_ID, torch.tensor([[BOS_ID, *ids]]))[0]
        steps = logits.log_softmax(-1)[torch.arange(len(ids) + 1), [*ids, EOS_ID]].tolist()
        assert record["token_log_probabilities"] == pytest.approx(steps, abs=1e-4)


def test_their_sum_is_the_loss_of_evaluate(language_model, file):
    results = records_of("score", language_model, "-i", file, "-q", "--format", "jsonl")
    records = [record for record in results if record["text"]]
    scores = record_of("evaluate", language_model, "--text", file, "-q", "--format", "json")
    assert sum(len(r["token_log_probabilities"]) for r in records) == scores["tokens"]
    total = -sum(r["log_probability"] for r in records)
    assert total / scores["tokens"] == pytest.approx(scores["loss"], rel=1e-6)


@pytest.fixture(scope="module", params=["bert", "roberta"])
def masked(request, tmp_path_factory):
    """A random masked language model, imported, and the original."""
    pytest.importorskip("transformers")
    from tests.foreign import encoders

    path = tmp_path_factory.mktemp("masked") / "theirs"
    model, tokenizer = encoders.write_directory(path, request.param, "ForMaskedLM")
    output_of("import", path, "-o", path.parent / "ours", "-q")
    return path.parent / "ours", model, tokenizer


@torch.inference_mode()
def pseudo_log_likelihoods(masked, line):
    """ln p of each token where it alone is hidden, by transformers, a pass a token."""
    _, model, tokenizer = masked
    mask = tokenizer.token_to_id("[MASK]") or tokenizer.token_to_id("<mask>")
    ids = torch.tensor(tokenizer.encode(line).ids)
    steps = []
    for place in range(1, len(ids) - 1):
        hidden = ids.clone()
        hidden[place] = mask
        logits = model(input_ids=hidden[None]).logits[0, place].double()
        steps.append(logits.log_softmax(0)[ids[place]].item())
    return steps


def test_masked_models_score_pseudo_log_likelihoods(masked, tmp_path):
    lines = ["the soup was good", "", "Caf\u00e9 terrible", "soup " * 80]
    file = tmp_path / "texts"
    file.write_text("".join(f"{line}\n" for line in lines))
    records = records_of("score", masked[0], "-i", file, "-q", "--format", "jsonl")
    assert [record.get("truncated", False) for record in records] == [False, False, False, True]
    for record in (records[0], records[2]):
        expected = pseudo_log_likelihoods(masked, record["text"])
        assert record["token_log_probabilities"] == pytest.approx(expected, abs=1e-4)
        assert record["log_probability"] == pytest.approx(sum(expected), abs=1e-3)
    assert records[1]["log_probability"] == 0.0
    assert records[1]["token_ids"] == []
    assert 30 < len(records[3]["token_log_probabilities"]) < 40
    assert lines_of("score", masked[0], "-i", file, "-q") == [
        f"{record['log_probability']:.6f}" for record in records
    ]


TEXTS = ["Two dogs run.", "", "A man sleeps.", "dog " * 60, "the \u2028 end"]
GIVEN = ["good", "", " fair", "no\tgood", "good"]


@pytest.fixture
def labeled(tmp_path):
    for name, lines in (("texts", TEXTS), ("labels", GIVEN)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["-i", tmp_path / "texts", "--target-file", tmp_path / "labels"]


def test_a_label_has_a_score_in_every_format(classifier, labeled):
    done = run("score", classifier, *labeled, "-q")
    assert done.exit_code == 0, done.stderr
    records = records_of("score", classifier, *labeled, "-q", "--format", "jsonl")
    options = ("-q", "--format", "jsonl", "--top", 0)
    expected = records_of("classify", classifier, *labeled[:2], *options)
    for record, other, label in zip(records, expected, GIVEN, strict=True):
        assert (record["index"], record["text"]) == (other["index"], other["text"])
        assert (record["label"], record["predicted"]) == (label.strip(), other["label"])
        assert record.get("truncated") == other.get("truncated")
        if record["text"]:
            share = other["probabilities"][label.strip()]
            assert record["log_probability"] == pytest.approx(math.log(share))
    assert records[1]["log_probability"] is None
    values = [record["log_probability"] for record in records]
    plain = done.stdout.removesuffix("\n").split("\n")
    assert plain == ["" if value is None else f"{value:.6f}" for value in values]
    table = output_of("score", classifier, *labeled, "-q", "--format", "tsv")
    rows = [row.split("\t") for row in table.removesuffix("\n").split("\n")]
    assert [row[3] for row in rows] == plain
    assert [row[2] for row in rows] == ["good", "", "fair", "no good", "good"]


def test_their_mean_is_the_loss_of_evaluate(classifier, tmp_path):
    texts, labels = tmp_path / "texts", tmp_path / "labels"
    texts.write_text("Two dogs run.\nA man sleeps.\nthe end\n")
    labels.write_text("good\nfair\ngood\n")
    arguments = ("-i", texts, "--target-file", labels, "-q", "--format", "jsonl")
    values = [record["log_probability"] for record in records_of("score", classifier, *arguments)]
    evaluated = record_of(
        "evaluate", classifier, "-i", texts, "--reference", labels, "--format", "json", "-q"
    )
    assert evaluated["loss"] == pytest.approx(-sum(values) / 3)
