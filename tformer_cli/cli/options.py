"""Options that several commands share, each with its help sentence."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tformer_cli.cli.help_screen import MACHINE, MESSAGES
from tformer_cli.cli.path_roles import PathRole


class DecodingPrecision(StrEnum):  # Typer has no lists of literals, and `benchmark` takes several
    """Values of `--precision` where translations are searched for."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    int8 = "int8"


class Engine(StrEnum):
    """Values of `--engine`."""

    tformer = "tformer"
    compiled = "compiled"
    torch = "torch"


def option(
    sentence: str,
    *names: str,
    panel: str | None = None,
    shown: str | bool = True,
    **details: Any,  # noqa: ANN401 - Typer's
) -> Any:  # noqa: ANN401 - Typer's options have no type of their own
    """Declares an option behind its type, inside `Annotated`.

    Args:
        sentence: its help.
        names: `--output`, `-o`; none: that of its parameter.
        panel: its panel in the help; None: Common.
        shown: the default that the help shows in place of the real one.
        **details: other arguments of `typer.Option`.
    """
    return typer.Option(*names, help=sentence, rich_help_panel=panel, show_default=shown, **details)


ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model directory; a run directory is one."),
    PathRole.reads_model,
]
AdapterOption = Annotated[
    Path | None,
    option(
        "Low-rank adapter of MODEL, such as RUN/adapter, or one of peft; it is added to the "
        "weights.",
        shown="none",
        metavar="DIR",
    ),
    PathRole.reads_adapter,
]
DeviceOption = Annotated[
    str,
    option(
        "auto, cpu, cuda or cuda:N. auto takes a GPU if one is usable.",
        panel=MACHINE,
        metavar="DEVICE",
    ),
]
PrecisionOption = Annotated[
    Literal["auto", "float32", "bfloat16"],
    option(
        "Precision to train in; bfloat16 is mixed precision. auto takes the recipe's.",
        panel=MACHINE,
    ),
]
DecodingPrecisionOption = Annotated[
    DecodingPrecision,
    option("Precision to compute in. auto takes that of the model's weights.", panel=MACHINE),
]
EngineOption = Annotated[
    Engine,
    option(
        "Decoding engine. tformer: compiled kernels where they support the options, else torch.",
        panel=MACHINE,
    ),
]
OutputOption = Annotated[
    str,
    option("Output file; - is stdout.", "--output", "-o", shown="stdout", metavar="FILE"),
    PathRole.writes_file,
]
SeedOption = Annotated[
    int,
    option("Random seed for sampling.", panel=MACHINE, min=0),
]
TrainingSeedOption = Annotated[
    int | None,
    option(
        "Random seed of weights, dropout and the order of the data.",
        panel=MACHINE,
        shown="the recipe's",
        min=0,
    ),
]
ThreadsOption = Annotated[
    int,
    option("CPU threads; 0 takes all cores.", panel=MACHINE, min=0, max=1024),
]
QuietOption = Annotated[
    bool,
    option("Show only warnings and errors on stderr.", "--quiet", "-q", panel=MESSAGES),
]
