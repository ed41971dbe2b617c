"""The keys of recipes for people and editors: their sentences, and a JSON Schema.

Both follow from the dataclasses of the settings. An editor that reads the schema completes keys and
marks wrong ones. What depends on several keys is checked only by `tformer recipes check`.
"""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from inspect import getsource
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tformer_cli.model.config import PRESETS, RANGES, ModelConfig
from tformer_cli.recipe import START_KEYS, Recipe
from tformer_cli.settings import Limits, Option, declared_options, literal_values
from tformer_cli.version import __version__

SCHEMA = "tformer.recipe/1"
# Taplo, which checks TOML in most editors, knows this draft.
DRAFT = "http://json-schema.org/draft-07/schema#"
_SCALARS = {int: "integer", float: "number", bool: "boolean", str: "string"}
Schema = dict[str, Any]


def recipe_schema() -> Schema:
    """Returns the JSON Schema (draft 7) of recipes."""
    schema = _table(Recipe)
    tables = schema["properties"]
    # In TOML these keys are in [model]; a preset is none of the shape's fields
    start, model = tables.pop("start")["properties"], tables["model"]["properties"]
    model |= {key: start[name] for key, name in START_KEYS.items()}
    model["preset"] = {
        "enum": list(PRESETS),
        "description": "A shape by its name; the other keys of the table override it.",
    }
    return {
        "$schema": DRAFT,
        "schema": SCHEMA,
        "title": f"Recipe of tformer {__version__}",
        **schema,
    }


@cache
def sentences_of(settings: type) -> Mapping[str, str]:
    """Finds the sentence under each field of a settings dataclass, or else its option's help."""
    body = ast.parse(dedent(getsource(settings))).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - for mypy
    sentences = {name: option.help for name, option in declared_options(settings, Option).items()}
    for statement, text in pairwise(body.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(text, ast.Expr):
            name, sentence = statement.target, ast.literal_eval(text.value)
            assert isinstance(name, ast.Name)  # noqa: S101 - for mypy
            sentences[name.id] = " ".join(sentence.split())
    return sentences


def _table(settings: type) -> Schema:
    hints, sentences = get_type_hints(settings, include_extras=True), sentences_of(settings)
    properties, required = {}, []
    for field in fields(settings):
        schema = _value(hints[field.name])
        if settings is ModelConfig and field.name in RANGES:
            schema |= dict(zip(("minimum", "maximum"), RANGES[field.name], strict=True))
        properties[field.name] = {**schema, "description": sentences[field.name]} | _default(field)
        if field.default is field.default_factory is MISSING:
            required.append(field.name)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _default(field: Field[Any]) -> Schema:
    # TOML has no null; a table without keys is its own default
    if field.default in (MISSING, None):
        return {}
    return {"default": list(field.default) if isinstance(field.default, tuple) else field.default}


def _value(kind: Any) -> Schema:  # noqa: ANN401 - a type
    """Returns the schema of a type's values, as `structure` reads them."""
    limits = [part for part in getattr(kind, "__metadata__", ()) if isinstance(part, Limits)]
    if limits:
        return {**_value(get_args(kind)[0]), **limits[0].schema}
    if hasattr(kind, "__metadata__"):
        return _value(get_args(kind)[0])
    if is_dataclass(kind):
        return _table(kind)  # type: ignore[arg-type]
    if choices := literal_values(kind):
        return {"enum": [choice for choice in choices if choice is not None]}
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _value(next(part for part in parts if part is not NoneType))
    if origin is list or (origin is tuple and parts[-1] is Ellipsis):
        return {"type": "array", "items": _value(parts[0])}
    if origin is tuple:
        size = {"minItems": len(parts), "maxItems": len(parts)}
        return {"type": "array", "items": [_value(part) for part in parts], **size}
    if origin is not None:  # a mapping
        return {"type": "object", "additionalProperties": _value(parts[1])}
    return {} if kind is Any else {"type": _SCALARS[kind]}
