"""`tformer export`: a model for another engine."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.console import note
from tformer_cli.cli.options import ModelArgument, QuietOption


class ExportFormatChoice(StrEnum):
    """Values of `--format`."""

    ctranslate2 = "ctranslate2"


class QuantizationChoice(StrEnum):
    """Values of `--quantization`."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int16 = "int16"
    int8 = "int8"


def export(
    model: ModelArgument,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where to write [MODEL/ctranslate2]."),
    ] = None,
    export_format: Annotated[
        ExportFormatChoice, typer.Option("--format", help="Whose format to write.")
    ] = ExportFormatChoice.ctranslate2,
    quantization: Annotated[
        QuantizationChoice,
        typer.Option(help="How to store weights; the engine converts while it loads."),
    ] = QuantizationChoice.float32,
    quiet: QuietOption = False,
) -> None:
    """Write a model for the CTranslate2 engine.

    `tformer translate MODEL --engine ctranslate2` then uses it; so does the engine alone.
    """
    from tformer_cli.workflows import export as workflow

    path = workflow.export(model, output, quantization=quantization.value)
    note(f"{path}: {export_format.value} model, weights in {quantization.value}", quiet=quiet)
