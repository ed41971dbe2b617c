"""Checks of single words of a command line, before anything heavy is imported or computed.

What the work refuses later is refused here in the same words, after 0.5 s instead of 5.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError, UsageError

HEADS = {"heads": "--heads", "head": "--head", "prune": "--prune"}
"""Parameters that select heads, and their options."""

EARLIER_VALUES = {
    "engine": {
        "continuous": "--engine torch",
        "ctranslate2": "--engine tformer, which needs no export",
    }
}
"""Values that a parameter had, and what to write instead."""


def check_earlier_values(given: Mapping[str, Any]) -> None:
    """Refuses values of earlier versions before the parser, which would say less."""
    for parameter, values in EARLIER_VALUES.items():
        value = given.get(parameter)
        for one in value if isinstance(value, list) else [value]:
            if one in values:
                raise UsageError(f"--{parameter} {one}: is gone; write {values[one]}")


def check_words(values: Mapping[str, Any]) -> None:
    """Checks the name of a device, and that the package of the format to export to is installed."""
    from tformer_cli.runtime import check_device_name

    if isinstance(device := values.get("device"), str):
        try:
            check_device_name(device)
        except ValueError as error:
            raise UsageError(f"--device: {error}") from None
    if values.get("export_format") == "ctranslate2" and find_spec("ctranslate2") is None:
        raise UsageError(
            "--format ctranslate2, the default: the package is not installed; pip install "
            "'tformer[ctranslate2]', or choose another"
        )


def check_heads(values: Mapping[str, Any], model: Path) -> None:
    """Checks selections of heads against the settings of a model."""
    given = {option: values[name] for name, option in HEADS.items() if values.get(name)}
    if not given:
        return
    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.inspection.capture.heads import HeadLayout
    from tformer_cli.inspection.heads.selectors import HeadSelection

    try:
        heads = read_config(model).model.layer_heads
    except ArtifactError:  # a run without a model yet; others are refused when they are opened
        return
    if not all(n_heads for layers in heads for n_heads in layers):
        return  # layers that were pruned whole are still layers of `--weights rollout`
    for option, selections in given.items():
        texts: Sequence[str] = [selections] if isinstance(selections, str) else selections
        try:
            HeadSelection(texts, HeadLayout(*heads))
        except UsageError as error:
            raise UsageError(f"{option}{str(error).removeprefix('--heads')}") from None
