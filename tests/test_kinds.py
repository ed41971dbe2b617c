"""Kinds of models are rows: only `kinds/` and `model/` tell them apart."""

import re
from pathlib import Path
from typing import get_args

import pytest

import tformer_cli
from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.kinds import kind_named
from tformer_cli.kinds.kind import Kind
from tformer_cli.kinds.training import Training

PACKAGE = Path(tformer_cli.__file__).parent
FORK = re.compile(
    r"\b(is_encoder_only|is_decoder_only|reads_images)\b"
    rf'|"({"|".join(get_args(TaskKind))})"(?!:)'
)
VERB = re.compile(
    r'(open_model|_opens)\([^()]*\)|(job\.run|_opened_for|_check_search)\(\s*"\w+"'
    r'|"\w+" (not )?in [\w.]*verbs'
)
"""Words that are verbs, some of which are called like a kind."""
OUTSIDE = ("kinds/", "model/", "build_hook.py")
"""Where kinds may be told apart; a wheel has a "tag", too."""
STILL_TELL_APART = """
artifacts/config_file.py
artifacts/model_directory.py
cli/command.py
cli/commands/import_model.py
cli/commands/info.py
cli/commands/make_corpus.py
cli/commands/quickstart.py
corpora/make_corpus.py
fast/native/search.py
fast/native/weights.py
fast/native_search.py
fast/unpadded.py
foreign/ctranslate2/importing.py
foreign/export.py
quickstart.py
recipe.py
search/encoding.py
trainer/config.py
cli/inspect/inspect_ablate.py
cli/inspect/inspect_heads.py
cli/inspect/inspect_sentences.py
cli/inspect/inspect_view.py
heads/names.py
inspect/capture/forced.py
inspect/capture/observed.py
inspect/jobs/ablate.py
inspect/jobs/dump_heads.py
inspect/jobs/follow_heads.py
inspect/jobs/heads.py
inspect/jobs/reader.py
inspect/record.py
inspect/views/ablation.py
inspect/views/corpus.py
inspect/views/flow.py
inspect/views/image.py
inspect/views/positions.py
inspect/weighting/maps.py
"""
"""Files that still fork by kind. Remove lines; add none: ask `kind_of(config)` instead."""


def test_only_kinds_and_the_model_tell_kinds_apart():
    forks = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if FORK.search(VERB.sub("", file.read_text(encoding="utf-8")))
    }
    others = {name for name in forks if not name.startswith(OUTSIDE)}
    assert others <= set(STILL_TELL_APART.split())


@pytest.mark.parametrize("name", get_args(TaskKind))
def test_every_kind_has_a_module_of_its_name(name):
    assert kind_named(name).name == name


@pytest.mark.parametrize("protocol", [Kind, Training])
def test_the_protocols_stay_small(protocol):
    named = (*protocol.__annotations__, *vars(protocol))
    assert len({name for name in named if not name.startswith("_")}) <= 10
