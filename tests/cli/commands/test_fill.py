"""`tformer fill`: candidates as transformers has them, streams, formats, refusals."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tformer_cli.cli.app import app

pytest.importorskip("transformers")

from tests.foreign import encoders

LINES = ["the soup was [MASK].", "[MASK] [MASK]", "no gap", "", "un[MASK] caf\u00e9 <mask>"]


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def output_of(*arguments, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


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
    places = [n for n, one in enumerate(ids) if one == tokenizer.token_to_id(mask)]
    return [logits[place].double().softmax(0) for place in places]


def test_candidates_are_those_of_transformers(masked):
    shown = output_of("fill", masked[0], *LINES, "-q", "--format", "jsonl", "--top", 4)
    records = [json.loads(line) for line in shown.removesuffix("\n").split("\n")]
    assert [one["text"] for one in records] == LINES
    assert [len(one["gaps"]) for one in records] == [1, 2, 0, 0, 2]
    tokenizer = masked[2]
    never = {*encoders.SPECIAL, *encoders.BYTE_SPECIAL}
    kept = [n for piece, n in tokenizer.get_vocab().items() if piece not in never]
    for line, record in zip(LINES, records, strict=True):
        if not record["gaps"]:
            continue
        for gap, shares in zip(record["gaps"], expected_candidates(masked, line), strict=True):
            allowed = sorted((float(shares[n]) for n in kept), reverse=True)
            assert [one["probability"] for one in gap] == pytest.approx(allowed[:4], rel=1e-4)


def test_a_line_for_each_line_in_every_format(masked, tmp_path):
    file = tmp_path / "gaps.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    done = run("fill", masked[0], "-i", file, "-q")
    assert done.exit_code == 0, done.stderr
    assert "1 line without a gap" in done.stderr
    lines = done.stdout.removesuffix("\n").split("\n")
    assert len(lines) == 5
    assert lines[2:4] == ["no gap", ""]
    assert not any("[MASK]" in line or "<mask>" in line for line in lines)
    table = output_of("fill", masked[0], "-i", file, "-q", "--format", "tsv", "--top", 2)
    cells = [line.split("\t") for line in table.removesuffix("\n").split("\n")]
    assert [len(row) for row in cells] == [6, 10, 2, 2, 10]
    records = output_of("fill", masked[0], "-i", file, "-q", "--format", "jsonl")
    filled = [json.loads(line)["filled"] for line in records.removesuffix("\n").split("\n")]
    assert filled == lines


def test_candidates_are_the_same_bits_whatever_is_beside_a_line(masked, tmp_path):
    file = tmp_path / "many.txt"
    file.write_text("".join(f"the {'soup ' * (n % 9)}[MASK] was {n}\n" for n in range(40)))
    options = ["-i", file, "-q", "--format", "jsonl"]
    whole = output_of("fill", masked[0], *options)
    assert output_of("fill", masked[0], *options, "--buffer-lines", 1) == whole
    assert output_of("fill", masked[0], *options, "--buffer-lines", 7) == whole


def test_a_gap_behind_what_the_model_takes_stays(masked):
    line = "[MASK] " + "soup " * 60 + "[MASK]"
    done = run("fill", masked[0], line, "-q", "--format", "jsonl")
    record = json.loads(done.stdout)
    assert [len(gap) for gap in record["gaps"]] == [5, 0]
    assert record["truncated"]
    assert record["filled"].endswith("soup [MASK]")
    assert "1 line longer than the model takes; truncated" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", 2], "--top: text fills each gap once; add --format tsv or jsonl"),
        (["--too-long", "error"], "line 1: has "),
    ],
)
def test_what_cannot_be_is_one_line(masked, options, message):
    done = run("fill", masked[0], "[MASK] soup " * 60, "-q", *options)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


def test_the_line_that_is_too_long_is_named_whatever_stands_before_it(masked):
    done = run("fill", masked[0], "no gap", "", "[MASK] soup " * 60, "-q", "--too-long", "error")
    assert (done.exit_code, done.stderr.startswith("error: line 3: has ")) == (2, True)


def test_models_of_other_tasks_are_refused_by_name(masked, model):
    done = run("fill", model, "[MASK]", "-q")
    assert "is a translation model; use `tformer translate`" in done.stderr
    done = run("classify", masked[0], "a", "-q")
    assert "is a masked language model, which fills gaps in texts; use `tformer fill`, or" in (
        done.stderr
    )
