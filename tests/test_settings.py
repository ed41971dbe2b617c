"""Settings that are declared once, and the types that files are turned into."""

import ast
import datetime as dt
import importlib
import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

import pytest

from tformer_cli.cli.options import takes_decoding_options
from tformer_cli.search import config as decoding_config
from tformer_cli.search import keywords
from tformer_cli.search.config import DecodingConfig, search_options
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.settings import (
    ANY,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Argument,
    Option,
    at_least,
    between,
    check_limits,
    declared_options,
    literal_values,
    setting,
    type_problem,
    types_of,
)
from tformer_cli.structure import StructureError, structure

WRITES = "TFORMER_WRITE_KEYWORDS" in os.environ
KEYWORDS = '''"""Types of keyword arguments for type checkers, written from the settings by a test.

`TFORMER_WRITE_KEYWORDS=1 pytest -n0 tests/test_settings.py -k keyword` does.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypedDict

from tformer_cli.search.config import (
    Engine,
    EnsembleSpace,
    PrecisionChoice,
    SentenceRule,
    TooLong,
)


class SearchOverrides(TypedDict, total=False):
    """Fields of `DecodingConfig` that may differ from a model's defaults; None: as if not given."""

{search}

class DecodingOverrides(SearchOverrides, total=False):
    """All of them."""

{n_best}

class LoadSettings(DecodingOverrides, total=False):
    """Keyword arguments of `tformer.load`: those of `OpeningSettings`, and of the search."""

{opening}

class TranslatorOptions(LoadSettings, total=False):
    """Keyword arguments of `open_model`."""

{internal}'''


@dataclass(frozen=True, kw_only=True)
class Box:
    width: Annotated[int, between(1, 9)] = setting(3, "Width.", min=1)
    height: Annotated[int, at_least(0)] = 0
    share: Annotated[float, SHARE] = 0.5
    fraction: Annotated[float, FRACTION] = 0.5
    weight: Annotated[float, NOT_NEGATIVE] = 0.0
    depth: Annotated[float, POSITIVE] = 1.0


@pytest.mark.parametrize(
    ("name", "allowed", "refused", "words"),
    [
        ("width", [1, 9], [0, 10], "1 to 9"),
        ("height", [0, 10**9], [-1], "at least 0"),
        ("share", [1.0, 1e-9], [0.0, 1.1, float("nan")], "above 0 and at most 1"),
        ("fraction", [0.0, 0.99], [1.0, -0.1, float("nan")], "at least 0 and below 1"),
        ("weight", [0.0, 1e300], [-0.1, float("inf"), float("nan")], "a number of at least 0"),
        ("depth", [1e-300], [0.0, float("inf"), float("nan")], "a number above 0"),
    ],
)
def test_a_value_beyond_its_limits_is_refused(name, allowed, refused, words):
    for value in allowed:
        check_limits(Box(**{name: value}))
    for value in refused:
        with pytest.raises(ValueError, match=f"^{name}: must be {words}, but is {value}$"):
            check_limits(Box(**{name: value}))


@dataclass(frozen=True)
class Panel:
    rank: Annotated[int | None, Option("Rank.", min=1)] = None
    places: Annotated[tuple[int, ...], Option("Places.", min=0, max=9)] = ()
    least: Annotated[int, at_least(0)] = setting(0, "Least.", min=5)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"rank": 1, "places": (0, 9), "least": 1}, ""),
        ({"rank": 0}, "rank: must be at least 1, but is 0"),
        ({"places": (3, 10)}, "places: must be at least 0 and at most 9, but is 10"),
        ({"places": (float("nan"),)}, "places: must be at least 0 and at most 9, but is nan"),
        ({"least": -1}, "least: must be at least 0, but is -1"),
    ],
)
def test_limits_of_an_option_hold_where_the_type_has_none(values, problem):
    if problem:
        with pytest.raises(ValueError, match=f"^{problem}$"):
            check_limits(Panel(**values))
    else:
        check_limits(Panel(**values))


def test_a_declared_option_is_found():
    assert declared_options(Box, Option) == {"width": Option("Width.", min=1)}
    assert Box().width == Box.width == 3


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (1, int, ""),
        (1, float, ""),
        (True, bool, ""),
        (True, int, "must be int, but is True (bool)"),
        ("1", int, "must be int, but is '1' (str)"),
        ("b", Literal["a", "b"], ""),
        ("c", Literal["a", "b"], "must be one of a, b; found 'c'"),
        (None, Literal["a", "b"] | None, ""),
        (None, Literal["a", "b"], "must be one of a, b; found None"),
        ("c", Literal["a", "b"] | None, "must be one of a, b; found 'c'"),
    ],
)
def test_a_python_value_is_checked_by_its_type(value, kind, problem):
    assert type_problem(value, kind) == problem


def test_only_types_of_words_have_values():
    assert literal_values(Literal["a"] | None) == (None, "a")
    assert literal_values(int) == literal_values(str | None) == literal_values(int | str) == ()


def test_the_options_of_a_command_are_its_signature():
    @takes_decoding_options
    def command(**decoding: object):
        """Decodes."""

    shown = {}
    for name, parameter in inspect.signature(command).parameters.items():
        kind, option = get_args(parameter.annotation)
        assert parameter.default is None
        shown[name] = (kind, option.panel or "Common", option.min)
    types = types_of(DecodingConfig)
    assert shown == {
        name: (types[name] | None, option.panel or "Common", option.min)
        for name, option in search_options().items()
    }
    assert set(shown) == {key.name for key in fields(DecodingConfig)} - {"n_best"}
    assert shown["beam_size"] == (int | None, "Common", 1)
    assert shown["risk"] == (Literal["none", "chrf", "bleu"] | None, "Sampling", None)


def test_language_models_have_options_without_a_source():
    of_texts = search_options(of_prompts=True)
    assert set(search_options()) - set(of_texts) == {
        "coverage_penalty", "max_length_ratio", "min_length_ratio",
    }  # fmt: skip
    assert of_texts["max_length"].shown_default == "the model's, or 200"
    assert of_texts["min_length"].help == "Minimum number of tokens to add to a prompt."
    assert of_texts["top_k"].help == search_options()["top_k"].help


def test_a_search_knows_what_the_simpler_one_knows_and_more():
    tables = [
        getattr(decoding_config, name)
        for name in ("BEAM_SEARCH", "PLAIN_SEARCH", "KERNEL_SEARCH", "ANY_SEARCH")
    ]
    added = [
        {name for name in more if more[name] != fewer[name]} for fewer, more in pairwise(tables)
    ]
    assert added == [
        {"length_normalization", "risk", "distinct_texts"},
        {"min_length", "min_length_ratio", "no_repeat_ngram", "sampling"},
        {"coverage_penalty", "repetition_penalty", "diversity_groups"},
    ]
    assert tables[0]["beam_size"] is ANY
    assert tables[0]["risk"] == ("none",)
    assert tables[1]["risk"] == ("none", "chrf", "bleu")
    assert tables[2]["sampling"] == (False, True)


def declared_types(kind: type) -> dict[str, str]:
    """The types of a dataclass's fields as its source has them, without limits."""
    tree = ast.parse(inspect.getsource(kind)).body[0].body
    types = {}
    for node in tree:
        if isinstance(node, ast.AnnAssign):
            text = ast.unparse(node.annotation)
            if text.startswith("Annotated["):
                text = ast.unparse(node.annotation.slice.elts[0])
            types[node.target.id] = text.replace("'", '"')
    return types


def test_the_types_of_keyword_arguments_are_those_of_the_settings():
    search = declared_types(DecodingConfig)
    lines = {name: f"    {name}: {kind} | None\n" for name, kind in search.items()}
    n_best = lines.pop("n_best")
    settings = declared_types(OpeningSettings)
    public = declared_options(OpeningSettings, Argument)
    opening = {
        name: f"    {name}: {re.sub('Path', 'Path | str', kind)}\n"
        for name, kind in settings.items()
    }
    expected = KEYWORDS.format(
        search="".join(lines.values()),
        n_best=n_best,
        opening="".join(opening.pop(name) for name in public),
        internal="".join(opening.values()),
    )
    check_written(Path(keywords.__file__), expected)
    written = importlib.reload(keywords) if WRITES else keywords
    assert set(get_type_hints(written.TranslatorOptions)) == {
        *(key.name for key in fields(DecodingConfig)), *settings,
    }  # fmt: skip


def check_written(file, expected):
    if WRITES:
        file.write_text(expected, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == expected


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
    choice: Literal["auto", "off"] | bool | None = "auto"
    several: int | tuple[int, ...] = 1


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
        ({"choice": "of"}, "choice: must be 'auto', 'off', true or false; found \"of\""),
        ({"several": "1"}, 'several: must be a whole number or a list; found "1"'),
        ({"several": [1, "2"]}, 'several.1: must be a whole number; found "2"'),
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
