"""`tformer fill`: candidates as transformers has them, streams, formats, refusals."""

import json

import pytest
import torch

from tests.commands import lines_of, output_of, records_of, run

pytest.importorskip("transformers")

from tests.foreign import encoders

LINES = ["the soup was [MASK].", "[MASK] [MASK]", "no gap", "", "un[MASK] caf\u00e9 <mask>"]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def masked(request, tmp_path_factory):
    """A random masked language model, imported, and the original."""
    path = tmp_path_factory.mktemp("masked") / "theirs"
    model, tokenizer = encoders.write_directory(path, request.param, "ForMaskedLM")
    ours = path.parent / "ours"
    output_of("import", path, "-o", ours, "-q")
    return ours, model, tokenizer


def expected_candidates(masked, line):
    """Probabilities of all pieces at every gap, computed by transformers."""
    _, model, tokenizer = masked
    mask = "[MASK]" if tokenizer.token_to_id("[MASK]") is not None else "<mask>"
    for name in ("[MASK]", "<mask>"):
        line = line.replace(name, "\0")
    if mask == "<mask>":  # takes the spaces before it, as its own files say
        line = line.replace(" \0", "\0")
    # the library's tokenizer knows the mask as a special token
    ids = [
        part
        for piece in line.split("\0")
        for part in (
            tokenizer.token_to_id(mask),
            *tokenizer.encode(piece, add_special_tokens=False).ids,
        )
    ]
    begin, end = (tokenizer.encode("").ids[0], tokenizer.encode("").ids[-1])
    ids = [begin, *ids[1:], end]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    places = [n for n, token_id in enumerate(ids) if token_id == tokenizer.token_to_id(mask)]
    return [logits[place].double().softmax(0) for place in places]


def test_candidates_are_those_of_transformers(masked):
    records = records_of("fill", masked[0], *LINES, "-q", "--format", "jsonl", "--top", 4)
    assert [record["text"] for record in records] == LINES
    assert [len(record["gaps"]) for record in records] == [1, 2, 0, 0, 2]
    tokenizer = masked[2]
    never = {*encoders.SPECIAL, *encoders.BYTE_SPECIAL}
    kept = [n for piece, n in tokenizer.get_vocab().items() if piece not in never]
    for line, record in zip(LINES, records, strict=True):
        if not record["gaps"]:
            continue
        for gap, shares in zip(record["gaps"], expected_candidates(masked, line), strict=True):
            allowed = sorted((float(shares[n]) for n in kept), reverse=True)
            assert [piece["probability"] for piece in gap] == pytest.approx(allowed[:4], rel=1e-4)


def test_the_formats_agree(masked):
    done = run("fill", masked[0], *LINES, "-q")
    assert "1 line without a gap" in done.stderr
    lines = done.stdout.removesuffix("\n").split("\n")
    assert lines[2:4] == ["no gap", ""]
    assert not any("[MASK]" in line or "<mask>" in line for line in lines)
    table = lines_of("fill", masked[0], *LINES, "-q", "--format", "tsv", "--top", 2)
    assert [len(line.split("\t")) for line in table] == [6, 10, 2, 2, 10]
    records = records_of("fill", masked[0], *LINES, "-q", "--format", "jsonl")
    assert [record["filled"] for record in records] == lines


def test_a_gap_behind_what_the_model_takes_stays(masked):
    line = "[MASK] " + "soup " * 60 + "[MASK]"
    done = run("fill", masked[0], line, "-q", "--format", "jsonl")
    record = json.loads(done.stdout)
    assert [len(gap) for gap in record["gaps"]] == [5, 0]
    assert record["truncated"]
    assert record["filled"].endswith("soup [MASK]")
    assert "1 line longer than the model takes; truncated" in done.stderr
