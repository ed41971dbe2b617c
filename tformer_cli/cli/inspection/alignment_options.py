"""Options of `inspect-align`: what is aligned, by which heads, and what becomes a link."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.format_choice import check_ending, chosen_format, format_option
from tformer_cli.cli.inspection.options import SourceOption
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.errors import UsageError
from tformer_cli.inspection.views.alignment import VIEW

EXTRACTION = "Links"
"""The panel of options that decide what becomes a link."""


SCORING = "Scores against gold alignments"
"""The panel of options that go with --gold."""


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Sentences, their translations, and the words of both."""

    source: SourceOption = None
    target_file: Annotated[
        str | None,
        typer.Option(
            "--target-file",
            metavar="FILE",
            help="Target sentences, one per source line, to align with.",
            show_default="the model's translations",
        ),
        PathRole.reads_file,
    ] = None
    source_words: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The source with spaces between words, if links should count these words.",
            show_default="the source's own spaces",
        ),
        PathRole.reads_file,
    ] = None
    target_words: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The target with spaces between words, if links should count these words.",
            show_default="the target's own spaces",
        ),
        PathRole.reads_file,
    ] = None

    @property
    def of_pairs(self) -> list[str | None]:
        return [self.target_file, self.source_words, self.target_words]


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Heads that align, and rules by which their weights become links."""

    heads: Annotated[
        list[str] | None,
        typer.Option(
            "--heads",
            metavar="HEADS",
            help="Cross-attention heads to align with, such as cross.1.3, cross.2 or cross.last; "
            "several are averaged. Repeatable.",
            show_default="those stored by --save, else the last half of the layers",
            rich_help_panel=EXTRACTION,
            autocompletion=complete_heads,
        ),
    ] = None
    convention: Annotated[
        Literal["naive", "shift"] | None,
        typer.Option(
            help="Which decoder position stands for a target token: the one that predicts it "
            "(naive), or the one that has read it (shift; SHIFT-ATT, Chen et al. 2020).",
            show_default="that of the stored heads; naive for --heads; else as unchanged words say",
            rich_help_panel=EXTRACTION,
        ),
    ] = None
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="X",
            help="Link all word pairs with at least this attention weight, from 0 to 1.",
            show_default="each target word's largest weight",
            rich_help_panel=EXTRACTION,
        ),
    ] = None
    eos: Annotated[
        Literal["drop", "keep"],
        typer.Option(
            help="The weight on the end of sentence: ignore it (drop), or give a word that attends "
            "most to it no link (keep).",
            rich_help_panel=EXTRACTION,
        ),
    ] = "drop"
    reverse: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="A model of the reverse direction, to align both ways.",
            rich_help_panel=EXTRACTION,
        ),
        PathRole.reads_model,
    ] = None
    method: Annotated[
        Literal["intersection", "union", "grow-diag", "grow-diag-final-and"],
        typer.Option(
            "--symmetrize",
            metavar="METHOD",
            help="How to join both directions of --reverse: intersection, union, grow-diag or "
            "grow-diag-final-and.",
            rich_help_panel=EXTRACTION,
        ),
    ] = "grow-diag"


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Gold alignments, and scores against them."""

    gold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Gold alignments (i-j sure, i?j possible) to score every head and layer with.",
            rich_help_panel=SCORING,
        ),
        PathRole.reads_file,
    ] = None
    one_based: Annotated[
        bool,
        typer.Option(
            "--one-based", help="The gold file counts words from 1.", rich_help_panel=SCORING
        ),
    ] = False
    save: Annotated[
        bool,
        typer.Option(
            "--save",
            help="Store the best heads in the model directory, as the default for later commands.",
            rich_help_panel=SCORING,
        ),
    ] = False
    scores_format: Annotated[
        str | None,
        format_option(VIEW.formats, "jsonl", "Format of the scores.", SCORING),
    ] = None

    def chosen_format(self, pairs: PairOptions, links: LinkOptions, output: str) -> str:
        if pairs.target_file is None:
            if self.gold is not None:
                raise UsageError(
                    "--gold: needs given translations; name their file with --target-file"
                )
            if any(pairs.of_pairs):
                raise UsageError(
                    "--source-words, --target-words: need sentence pairs; add --target-file"
                )
        options = {
            "--save": self.save,
            "--format": self.scores_format,
            "--one-based": self.one_based,
        }
        for option, value in options.items():
            if value and self.gold is None:
                raise UsageError(f"{option}: applies to scores; name gold alignments with --gold")
        chosen = "jsonl"
        if self.gold is None:
            check_ending(output, ["pharaoh"])
        else:
            chosen = chosen_format(self.scores_format, output, VIEW.formats, chosen)
        if self.save and links.reverse is not None:
            raise UsageError("--save: stores the heads of one model; omit --reverse")
        return chosen
