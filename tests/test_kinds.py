"""Kinds of models are rows: only `kinds/` and `model/` tell them apart."""

import re
from pathlib import Path
from typing import get_args

import pytest

import tformer_cli
from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.kinds import kind_named
from tformer_cli.kinds.kind import Kind, Training

PACKAGE = Path(tformer_cli.__file__).parent
CAPABILITY = re.compile(r"\b(is_encoder_only|is_decoder_only|reads_images)\b")
NAME = re.compile(rf'"({"|".join(get_args(TaskKind))})"(?!:)')
VERB = re.compile(
    r'(open(?:ed)?_model|_opens)\([^()]*\)|(job\.run|_opened_for|_check_search|_compute_lines)\(\s*"\w+"'
    r'|"\w+" (not )?in [\w.]*verbs'
)
"""Words that are verbs, some of which are called like a kind."""
OUTSIDE = ("kinds/", "model/", "artifacts/config_file.py")
"""Where kinds may be told apart; `config_file` holds the data of their rows."""
SAME_WORDS = """
build_hook.py
cli/command.py
plugins/built_in/commands/make_corpus.py
cli/commands/models.py
plugins/built_in/commands/quickstart.py
cli/known_commands.py
plugins/built_in/make_corpus.py
plugins/documents/bilingual.py
plugins/serve/inspection.py
plugins/documents/html.py
plugins/documents/html_markup.py
plugins/documents/inline_codes.py
plugins/documents/markdown.py
plugins/interchange/ctranslate2/importing.py
foreign/known_models.py
inspect/views/__init__.py
plugins/built_in/quickstart.py
plugins/serve/chat.py
plugins/serve/live.py
plugins/serve/openai.py
plugins/serve/translations.py
"""
"""Files in which a word such as "translate" names a command, corpus, view or another tool's key."""
STILL_TELL_APART = """
fast/native/search.py
fast/native/weights.py
fast/native_search.py
plugins/interchange/export.py
inspect/capture/maps.py
plugins/instruments/jobs/ablate.py
plugins/instruments/jobs/dump_heads.py
plugins/instruments/jobs/follow_heads.py
inspect/jobs/heads.py
inspect/jobs/reader.py
inspect/record.py
plugins/instruments/views/image.py
"""
"""Files that still fork by kind. Remove lines; add none: ask `kind_of(config)` instead."""


def test_only_kinds_and_the_model_tell_kinds_apart():
    names = set()
    for file in PACKAGE.rglob("*.py"):
        name, text = file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8")
        names_one = name not in SAME_WORDS.split() and NAME.search(VERB.sub("", text))
        if not name.startswith(OUTSIDE) and (names_one or CAPABILITY.search(text)):
            names.add(name)
    assert names <= set(STILL_TELL_APART.split())


@pytest.mark.parametrize("name", get_args(TaskKind))
def test_every_kind_has_a_module_of_its_name(name):
    assert kind_named(name).name == name


@pytest.mark.parametrize("protocol", [Kind, Training])
def test_the_protocols_stay_small(protocol):
    named = (*protocol.__annotations__, *vars(protocol))
    assert len({name for name in named if not name.startswith("_")}) <= 10
