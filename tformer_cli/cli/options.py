"""Options that several commands share, each with its help sentence."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from tformer_cli.cli.help_screen import MACHINE, MESSAGES
from tformer_cli.cli.path_roles import PathRole


class DecodingPrecisionChoice(StrEnum):
    """Values of `--precision` where translations are searched for."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


class EngineChoice(StrEnum):
    """Values of `--engine`."""

    tformer = "tformer"
    compiled = "compiled"
    torch = "torch"
    continuous = "continuous"
    ctranslate2 = "ctranslate2"


ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model directory; a run directory is one."),
    PathRole.reads_directory,
]
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="auto, cpu, cuda or cuda:N. auto takes a GPU if one is usable.",
        rich_help_panel=MACHINE,
    ),
]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option(
        help="Precision to train in; bfloat16 is mixed precision. auto takes the recipe's.",
        rich_help_panel=MACHINE,
    ),
]
DecodingPrecisionOption = Annotated[
    DecodingPrecisionChoice,
    typer.Option(
        help="Precision to compute in. auto takes that of the model's weights.",
        rich_help_panel=MACHINE,
    ),
]
EngineOption = Annotated[
    EngineChoice,
    typer.Option(
        help="Decoding engine. tformer: compiled kernels where they support the options, else "
        "torch. continuous: experimental, for GPUs. ctranslate2: needs the extra of that name, and "
        "`tformer export MODEL` once.",
        rich_help_panel=MACHINE,
    ),
]
OutputOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Output file; - is stdout.", show_default="stdout"
    ),
    PathRole.writes_file,
]
SeedOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Random seed for sampling.", rich_help_panel=MACHINE),
]
TrainingSeedOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Random seed of weights, dropout and the order of the data.",
        show_default="the recipe's",
        rich_help_panel=MACHINE,
    ),
]
ThreadsOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=1024,
        metavar="N",
        help="CPU threads; 0 takes all cores.",
        rich_help_panel=MACHINE,
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Show only warnings and errors on stderr.",
        rich_help_panel=MESSAGES,
    ),
]
