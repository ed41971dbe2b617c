"""Options that several commands share, each with its help sentence."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.path_roles import PathRole


class PrecisionChoice(StrEnum):
    """Values of `--precision`."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


class DecodingPrecisionChoice(StrEnum):
    """Values of `--precision` where translations are searched for."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


class EngineChoice(StrEnum):
    """Values of `--engine`."""

    tformer = "tformer"
    ctranslate2 = "ctranslate2"


ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model directory (a run directory is one)."),
    PathRole.reads_directory,
]
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar="DEVICE", help="auto, cpu, cuda or cuda:N; auto takes a GPU that is usable."
    ),
]
PrecisionOption = Annotated[
    PrecisionChoice, typer.Option(help="Numbers to compute with; auto decides and says so.")
]
DecodingPrecisionOption = Annotated[
    DecodingPrecisionChoice,
    typer.Option(help="Numbers to compute with; auto: what the weights are held in."),
]
EngineOption = Annotated[
    EngineChoice,
    typer.Option(help="Who searches; ctranslate2 needs `tformer export MODEL` once, and an extra."),
]
OutputOption = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Where to write (-: stdout)."),
    PathRole.writes_file,
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
TrainingSeedOption = Annotated[
    int | None, typer.Option(min=0, help="Seed of everything random [of the recipe].")
]
ThreadsOption = Annotated[
    int, typer.Option(min=0, max=1024, help="CPU threads (0: as many as cores).")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show nothing but warnings and errors on stderr.")
]
