"""Every key of a file of a foreign model is used, without effect, noted, or refused by name."""

import re
from pathlib import Path

import pytest

from tformer_cli.converters.keys import USED, Keys, Parts, no_effect, noted, only
from tformer_cli.errors import ArtifactError

FILE = Path("there.json")
KEYS = Keys(
    "there.json",
    "toys",
    {
        "width": USED,
        "dropout": no_effect("only in training"),
        "crop": noted("nothing is cropped", 1.0),
        "act": only("relu", None),
        "inner": {"depth": only(2)},
        "part": Parts({"Lower": {"strong": only(True)}, None: {}}, in_sequence=True),
        "one": Parts({"Lower": {}}),
    },
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"made_up": 3}, "made_up = 3 is unknown"),
        ({"made_up": {"x": 1}}, "made_up = a dict is unknown"),
        ({"a\x1b[31m": 1}, r'"a\u001b[31m" = 1 is unknown'),
        ({"act": "gelu"}, 'act = "gelu" is not supported'),
        ({"inner": {"made_up": 1}}, "inner.made_up = 1 is unknown"),
        ({"inner": [{"depth": 2}, {"depth": 3}]}, "inner.depth = 3 is not supported"),
        ({"inner": 5}, "inner = 5 is not supported"),
        ({"part": {"type": "Upper"}}, 'part.type = "Upper" is not supported'),
        ({"part": {"type": "Lower", "strong": False}}, "part.strong = false is not supported"),
        ({"part": {"type": "Sequence", "parts": [{"type": "No"}]}}, 'part.type = "No" is not'),
        ({"one": {"type": "Sequence", "parts": []}}, 'one.type = "Sequence" is not supported'),
        ({"one": None}, "one.type = null is not supported"),
        ({"part": {"type": ["Lower"]}}, "part = a dict is not supported"),
    ],
)
def test_what_a_table_lacks_is_refused_by_name(values, message):
    with pytest.raises(ArtifactError, match=f"^there.json: {re.escape(message)}"):
        KEYS.read(FILE, values)


def test_what_is_omitted_is_noted_once():
    values = {"width": 5, "dropout": 0.1, "act": None, "inner": None, "part": None, "other": None}
    assert KEYS.read(FILE, values) == []
    assert KEYS.read(FILE, {"crop": 1.0}) == []
    assert KEYS.read(FILE, {"crop": 0.9}) == ["crop = 0.9: nothing is cropped"]
    assert KEYS.read(FILE, {"inner": [{"depth": 2}], "part": {"type": "Sequence"}}) == []
