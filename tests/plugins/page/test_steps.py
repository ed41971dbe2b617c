"""Step by step on the exported page: each number and word compared with `inspect-step`."""

import math
import re

import numpy as np
import pytest

from tests.commands import record_of
from tests.models import save_random
from tests.slowly import slowly

TEXT = "Two dogs run in the snow."
TEXTS = {"masked": "A [MASK] in the <mask>.", "memory": "A man in the snow"}
MODELS = {
    "translate": ["enc.0.1", "enc.1.0", "dec.0.0", "dec.1.1", "cross.0.0", "cross.1.1"],
    "variant": ["enc.0.1", "dec.0.0", "cross.0.1"],
    "opus": ["enc.0.0", "cross.0.0"],
    "language_model": ["dec.0.1", "dec.1.0"],
    "llama": ["dec.0.1"],
    "memory": ["dec.0.0"],
    "classifier": ["enc.0.0", "enc.1.1"],
    "bert_classifier": ["enc.0.0"],
    "tagger": ["enc.1.0"],
    "masked": ["enc.0.0", "enc.1.1"],
    "sentences": ["enc.0.0"],
}
SHAPES = {
    "dot": {"similarity": "dot", "positions": "learned", "norm": "post"},
    "cosine": {"similarity": "cosine", "positions": "rotary", "gated": True, "activation": "gelu"},
    "distance": {"similarity": "distance", "positions": "alibi", "activation": "gelu-tanh"},
    "additive": {"similarity": "additive", "positions": "relative"},
    "bare": {"projections": False, "norm_kind": "rms", "norm": "post", "embedding_norm": True},
}
OTHERS = [name for name in MODELS if name not in ("translate", "variant")]
HEADS = ["enc.0.1", "dec.0.1", "cross.0.0"]
TOLERANCE = 1e-5
NUMBER = re.compile(r"-?\d+\.\d+")


def walk_of(answer):
    """The steps of an answer."""
    (walk,) = next(event["data"] for event in answer["events"] if event["event"] == "step")
    return walk


def assert_steps(walk, model, text, head, token=None):
    """Compares a walk with the command's JSON: words, numbers, and the numbers in words."""
    named = () if token is None else ("--token", str(token))
    wanted = record_of("inspect-step", model, text, "--head", head, *named, "--format", "json")
    assert walk["difference"] < TOLERANCE
    for name in ("head", "norm", "row", "token", "where", "key", "key_piece"):
        assert walk[name] == wanted[name]
    assert_alike(walk["steps"], wanted["steps"], "")


def assert_alike(value, wanted, where):
    """Compares JSON; numbers of a table by the largest of it where that is above 1."""
    if isinstance(wanted, dict):
        for name in wanted.keys() - {"difference", "values"}:
            assert_alike(value[name], wanted[name], f"{where}.{name}")
        if "values" in wanted:
            ours, theirs = (np.array(each["values"], np.float64) for each in (value, wanted))
            assert np.array_equal(np.isnan(ours), np.isnan(theirs)), where
            size = max(1.0, np.nanmax(abs(theirs)))
            assert np.nanmax(abs(ours - theirs)) < TOLERANCE * size, where
    elif isinstance(wanted, list):
        assert len(value) == len(wanted), where
        for n, (item, expected) in enumerate(zip(value, wanted, strict=True)):
            assert_alike(item, expected, f"{where}[{n}]")
    elif isinstance(wanted, str):
        assert NUMBER.sub("0", value) == NUMBER.sub("0", wanted), where
        # A digit may be rounded the other way
        for number, expected in zip(NUMBER.findall(value), NUMBER.findall(wanted), strict=True):
            last = 10.0 ** -len(expected.split(".")[1])
            assert math.isclose(float(number), float(expected), abs_tol=1.01 * last), where
    else:
        assert value == wanted, where


def assert_walks(client, model, text, heads):
    asked = [{"head": head, "token": token} for head in heads for token in (None, 1)]
    answers = client.run(model, [{"text": text, "want": ["step"], **each} for each in asked])
    for answer, each in zip(answers, asked, strict=True):
        assert_steps(walk_of(answer), model, text, **each)


@pytest.mark.parametrize("name", ["translate", "variant", *slowly(*OTHERS)])
def test_steps_are_those_of_the_command(client, zoo, name):
    assert_walks(client, zoo[name], TEXTS.get(name, TEXT), MODELS[name])


@pytest.mark.parametrize("name", SHAPES)
def test_steps_of_other_methods_are_those_of_the_command(client, tmp_path, name):
    shape = {"decoding": {"max_length": 8, "beam_size": 2}, **SHAPES[name]}
    assert_walks(client, save_random(tmp_path / name, **shape), TEXT, HEADS)


def test_what_cannot_be_walked_through_is_said_in_a_line(client, zoo):
    asked = [
        {"head": "dec.9.0"}, {}, {"head": "enc.0.0", "token": 99},
        {"head": "enc.0.0", "token": -1}, {"head": "enc.0.0", "heads_off": ["enc.0.1"]},
    ]  # fmt: skip
    answers = client.run(
        zoo["translate"], [{"text": TEXT, "want": ["step"], **each} for each in asked]
    )
    told = [answer["error"] for answer in answers]
    assert told[:2] == ["head: name one of the model's, such as cross.1.1"] * 2
    assert all(re.fullmatch(r"token: must be a position from 0 to \d+", line) for line in told[2:4])
    assert told[4] == "heads_off: the steps are those of the model with all its heads on"
