"""What the README says of recipe keys, commands and files is compared with the code."""

import ast
import os
import re
from dataclasses import MISSING, fields
from inspect import getsource
from itertools import pairwise
from pathlib import Path

import pytest

from tformer_cli.data.config import CorpusConfig, DataConfig, TokenizerConfig
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.model.config import ModelConfig
from tformer_cli.recipe import recipe_names
from tformer_cli.training.config import TrainingConfig, ValidationConfig

README = Path(__file__).parent.parent / "README.md"
TABLES = {
    "[data]": DataConfig,
    "a corpus of `data.train` or `data.valid`": CorpusConfig,
    "[tokenizer]": TokenizerConfig,
    "[model]": ModelConfig,
    "[training]": TrainingConfig,
    "[validation]": ValidationConfig,
    "[decoding]": DecodingConfig,
}
BEGIN, END = "<!-- recipe keys: from the code, by tests/test_readme.py -->", "<!-- end -->"


def sentences_of(settings) -> dict[str, str]:
    """The sentence under each field of a settings dataclass."""
    body = ast.parse(getsource(settings)).body[0].body
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def shown(default) -> str:
    if default is MISSING:
        return "required"
    if isinstance(default, str):
        return f'`"{default}"`'
    if isinstance(default, tuple):
        return "`[]`"
    return f"`{str(default).lower()}`"


def recipe_keys() -> str:
    lines = []
    for title, settings in TABLES.items():
        lines += [f"**{title}**", "", "| key | default | meaning |", "|---|---|---|"]
        sentences = sentences_of(settings)
        for field in fields(settings):
            meaning = sentences[field.name].replace("|", "\\|")
            lines.append(f"| `{field.name}` | {shown(field.default)} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def test_the_recipe_keys_are_those_of_the_code():
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = f"{before}{BEGIN}\n\n{recipe_keys()}\n{END}{after}"
    if os.environ.get("TFORMER_WRITE_README"):
        README.write_text(expected, encoding="utf-8")
    assert text == expected or os.environ.get("TFORMER_WRITE_README")


def test_every_shipped_recipe_is_named():
    text = README.read_text(encoding="utf-8")
    for name in recipe_names():
        assert f"`{name}`" in text


def test_every_picture_is_there_and_nothing_points_outside():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (README.parent / target).is_file(), target
    assert not re.search(r"\(/|\.\./", text)


@pytest.mark.parametrize("settings", TABLES.values(), ids=lambda kind: kind.__name__)
def test_every_setting_has_its_sentence(settings):
    assert set(sentences_of(settings)) == {field.name for field in fields(settings)}
