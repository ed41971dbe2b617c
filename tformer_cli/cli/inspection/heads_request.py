"""Request of `tformer inspect-heads`, handed to the job that does it."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.inspection.heads_output import BINARY, HeadsFormat
from tformer_cli.cli.inspection.options import CaptureModeChoice, OpeningArguments, SentenceOptions
from tformer_cli.cli.inspection.weights_option import WeightsChoice
from tformer_cli.cli.text_io import STANDARD_STREAM
from tformer_cli.errors import TformerError, UsageError

VerifyOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Exit with status 1 if the maps reproduce the model's output with a larger error.",
        show_default="no check",
    ),
]


@dataclass(frozen=True, kw_only=True)
class HeadsRequest:
    """The options of the command that more than one job reads or refuses."""

    model: Path
    """Model directory; of roles over time the run directory."""
    texts: list[str] | None
    """Sentences that are arguments."""
    sentences: SentenceOptions
    """Files of sentences and targets, the rank, and how maps are captured."""
    heads: tuple[str, ...]
    """Selections; none means all heads."""
    output_format: HeadsFormat | None
    """Value of `--format`."""
    chosen: HeadsFormat
    """The format, given or not."""
    output: str
    """Output file."""
    weights: WeightsChoice | None
    """Kind of numbers in the maps."""
    verify: float | None
    """Largest residual that is let pass."""
    quiet: bool
    """True if notes and progress are omitted."""
    opening: OpeningArguments
    """Settings for opening the model."""
    is_corpus: bool = False
    """True if `--corpus` was given."""
    dump: Path | None = None
    """Value of `--dump`."""
    _given: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        sentences = self.sentences
        given = {
            "TEXT": bool(self.texts),
            "--source": sentences.source is not None,
            "--target": sentences.target is not None,
            "--target-file": sentences.target_file is not None,
            "--rank": sentences.rank > 1,
            "--mode live": sentences.mode != CaptureModeChoice.forced,
            "--weights": self.weights is not None,
            "--format": self.output_format is not None,
            "--output": self.output != STANDARD_STREAM,
            "--corpus": self.is_corpus,
            "--dump": self.dump is not None,
            "--verify": self.verify is not None,
        }
        names = frozenset(name for name, is_given in given.items() if is_given)
        object.__setattr__(self, "_given", names)

    def refuse(self, options: Iterable[str], why: str) -> None:
        """Makes sure that none of some options is given.

        Args:
            options: their names; the first one that is given is named.
            why: why they cannot be used, and what to do.

        Raises:
            UsageError: if one is.
        """
        for option in options:
            if option in self._given:
                raise UsageError(f"{option}: {why}")

    def check_residual(self, residual: float, where: str) -> None:
        """Makes sure that maps are as exact as `--verify` asks.

        Raises:
            TformerError: if they are not.
        """
        if self.verify is not None and not residual <= self.verify:
            raise TformerError(
                f"{where}: residual {residual:.2g} exceeds --verify {self.verify:.2g}; the "
                "maps do not reproduce the model's output so exactly"
            )


def check_not_for_terminal(request: HeadsRequest) -> None:
    """Makes sure that no bytes go to a terminal which are not text.

    Raises:
        UsageError: if they would.
    """
    chosen = request.chosen
    if chosen in BINARY and request.output == STANDARD_STREAM and sys.stdout.isatty():
        raise UsageError(f"--format {chosen}: is not text for a terminal; name a file with -o FILE")
