"""Options that several commands share, each with its help sentence."""

from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from tformer_cli.cli.help_screen import MACHINE, MESSAGES
from tformer_cli.cli.option_groups import option_type
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.decoding.opening import OpeningSettings
from tformer_cli.evaluation.choices import Tokenization

Value = TypeVar("Value")


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
    """Declares an option behind its type, inside `Annotated`."""
    return typer.Option(*names, help=sentence, rich_help_panel=panel, show_default=shown, **details)


def option_field(
    default: Value,
    sentence: str,
    *names: str,
    role: PathRole | None = None,
    **details: Any,  # noqa: ANN401 - those of `option`
) -> Value:
    """Declares a field of a group of options with its default, help and names; see `option`."""
    metadata = {"option": option(sentence, *names, **details), "role": role}
    declared: Value = field(default=default, metadata=metadata)
    return declared


ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model directory; a run directory is one."),
    PathRole.reads_model,
]
AdapterOption = option_type(OpeningSettings, "adapter")
DeviceOption = option_type(OpeningSettings, "device")
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
OutputOption = Annotated[
    str,
    option("Output file; - is stdout.", "--output", "-o", shown="stdout", metavar="FILE"),
    PathRole.writes_file,
]
SeedOption = option_type(OpeningSettings, "seed")
TrainingSeedOption = Annotated[
    int | None,
    option(
        "Random seed of weights, dropout and the order of the data.",
        panel=MACHINE,
        shown="the recipe's",
        min=0,
    ),
]
ThreadsOption = option_type(OpeningSettings, "threads")
QuietOption = Annotated[
    bool,
    option("Show only warnings and errors on stderr.", "--quiet", "-q", panel=MESSAGES),
]
LowercaseOption = Annotated[bool, option("Ignore case when scoring.", "--lowercase")]
TokenizeOption = Annotated[
    Tokenization,
    option(
        "sacreBLEU's tokenizer for BLEU. ja-mecab and ko-mecab need the extras ja and ko; "
        "flores101, flores200 and spBLEU-1K the extra spm, and a model that is downloaded once."
    ),
]
