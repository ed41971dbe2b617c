import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

from tformer_cli.structure import StructureError, structure


@dataclass(frozen=True, kw_only=True)
class Wheel:
    size: int = 10
    kind: Literal["front", "rear"] = "front"

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size: must be at least 1, but is {self.size}")


@dataclass(frozen=True, kw_only=True)
class Bicycle:
    name: str
    wheels: tuple[Wheel, ...] = ()
    main: Wheel = field(default_factory=Wheel)
    weight: float = 1.0


def test_nested_settings_are_made_whole():
    bicycle = structure(Bicycle, {"name": "a", "wheels": [{"size": 3}, {}], "weight": 2})
    assert bicycle == Bicycle(name="a", wheels=(Wheel(size=3), Wheel()), weight=2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a", "wieght": 1}, 'wieght: unknown key; did you mean "weight"?'),
        ({"name": "a", "main": {"sise": 1}}, 'main.sise: unknown key; did you mean "size"?'),
        (
            {"name": "a", "wheels": [{}, {"qqqqq": 1}]},
            "wheels.1.qqqqq: unknown key; the known keys are size, kind",
        ),
        (
            {"name": "a", "size": 1},
            'size: unknown key; did you mean "main.size"?',
        ),
        (
            {"name": "a", "main": {"weight": 1}},
            'main.weight: unknown key; did you mean "weight"?',
        ),
        ({}, "name: is missing; it has no default"),
        (
            {"name": "a", "main": {"size": "10"}},
            'main.size: must be a whole number; found "10"',
        ),
        ({"name": "a", "main": {"size": 0}}, "main.size: must be at least 1, but is 0"),
        (
            {"name": "a", "main": {"kind": "side"}},
            "main.kind: must be 'front' or 'rear'; found \"side\"",
        ),
        (
            {"name": "a", "main": {"size": dt.date(2024, 1, 1)}},
            "main.size: must be a string, a number, true or false, a list or a table",
        ),
        ({"name": 3}, 'name: must be text in quotes ("…"); found 3'),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(values, message):
    with pytest.raises(StructureError, match=f"^{re.escape(message)}$"):
        structure(Bicycle, values)


@dataclass(frozen=True, kw_only=True)
class Odd:
    pair: tuple[float, int] = (0.5, 1)
    table: Mapping[str, float] = field(default_factory=dict)
    wheel: Wheel | None = None
    flag: bool = False
    scores: list[dict[str, float]] = field(default_factory=list)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pair": [0.5]}, "pair: must be a list of 2; found [0.5]"),
        ({"pair": [True, 1]}, "pair.0: must be a number; found true"),
        ({"pair": [10**400, 1]}, "pair.0: must be a smaller number"),
        ({"table": {"a": "1"}}, 'table.a: must be a number; found "1"'),
        ({"table": [1]}, "table: must be a table; found [1]"),
        ({"wheel": 3}, "wheel: must be a table; found 3"),
        ({"wheel": {"size": 1.0}}, "wheel.size: must be a whole number; found 1.0"),
        ({"scores": [{"a": 1}, {"a": []}]}, "scores.1.a: must be a number; found []"),
        ({"flag": 1}, "flag: must be true or false; found 1"),
    ],
)
def test_every_type_is_checked(values, message):
    with pytest.raises(StructureError, match=f"^{re.escape(message)}$"):
        structure(Odd, values)


def test_half_a_character_is_refused():
    with pytest.raises(StructureError, match=r"^name: must be text without lone surrogates$"):
        structure(Bicycle, {"name": "a\ud800"})


def test_none_and_tables_are_kept():
    odd = structure(Odd, {"pair": (1, 2), "table": {"a": 1}, "wheel": None, "scores": [{}]})
    assert odd == Odd(pair=(1.0, 2), table={"a": 1.0}, scores=[{}])
    assert isinstance(odd.pair[0], float)
