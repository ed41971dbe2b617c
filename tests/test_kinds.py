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
STILL_TELL_APART = """
artifacts/config_file.py
artifacts/model_directory.py
cli/command.py
cli/commands/classify.py
cli/commands/embed.py
cli/commands/fill.py
cli/commands/import_model.py
cli/commands/info.py
cli/commands/make_corpus.py
cli/commands/quickstart.py
cli/commands/score.py
cli/commands/score_texts.py
cli/image_options.py
cli/inspection/inspect_ablate.py
cli/inspection/inspect_diff.py
cli/inspection/inspect_heads.py
cli/inspection/inspect_report.py
cli/inspection/inspect_step.py
cli/inspection/inspect_view.py
cli/inspection/options.py
converters/argos.py
converters/hugging_face/exporting.py
converters/hugging_face/model_card.py
decoding/encoding.py
fast/native/search.py
fast/native/weights.py
fast/native_search.py
fast/unpadded.py
inspection/ablation/record.py
inspection/capture/batches.py
inspection/capture/forced.py
inspection/capture/heads.py
inspection/capture/observed.py
inspection/json_lines.py
inspection/record.py
inspection/view.py
inspection/views/ablation.py
inspection/views/flow.py
inspection/views/image.py
inspection/views/position_scores.py
inspection/views/repeats.py
inspection/weighting/pooled.py
recipe.py
training/config.py
workflows/classify.py
workflows/embed.py
workflows/export.py
workflows/inspection/ablate.py
workflows/inspection/dump_heads.py
workflows/inspection/follow_heads.py
workflows/inspection/heads.py
workflows/inspection/reader.py
workflows/loaded_model.py
workflows/make_corpus.py
workflows/opening/encoder.py
workflows/opening/generator.py
workflows/opening/precision.py
workflows/opening/translator.py
workflows/quickstart.py
workflows/score_labels.py
"""
"""Files that still fork by kind. Remove lines; add none: ask `kind_of(config)` instead."""


def test_only_kinds_and_the_model_tell_kinds_apart():
    forks = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if FORK.search(file.read_text(encoding="utf-8"))
    }
    others = {name for name in forks if not name.startswith(("kinds/", "model/"))}
    assert others <= set(STILL_TELL_APART.split())


@pytest.mark.parametrize("name", get_args(TaskKind))
def test_every_kind_has_a_module_of_its_name(name):
    assert kind_named(name).name == name


@pytest.mark.parametrize("protocol", [Kind, Training])
def test_the_protocols_stay_small(protocol):
    named = (*protocol.__annotations__, *vars(protocol))
    assert len({name for name in named if not name.startswith("_")}) <= 10
