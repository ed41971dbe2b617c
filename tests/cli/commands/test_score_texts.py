"""`tformer score` of language models, masked ones too: each line by itself."""

import math

import pytest
import torch

from tests.commands import lines_of, output_of, record_of, records_of
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

LINES = ["Two dogs run in the street", "", "zxqj ☃ zxqj", "A dog", "the snow " * 30]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def test_a_score_a_line_in_every_format(language_model, file):
    given = ("score", language_model, "-i", file, "-q")
    records = records_of(*given, "--format", "jsonl")
    assert [f"{r['log_probability']:.6f}" for r in records] == lines_of(*given)
    rows = lines_of(*given, "--format", "tsv")
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
    found = records_of("score", language_model, "-i", file, "-q", "--format", "jsonl")
    records = [one for one in found if one["text"]]
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
