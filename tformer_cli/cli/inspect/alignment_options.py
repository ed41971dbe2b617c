"""Options of `inspect-align`: what is aligned, by which heads, and what becomes a link."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tformer_cli.cli.format_choice import check_ending, chosen_format, format_option
from tformer_cli.cli.inspect.options import SourceOption
from tformer_cli.cli.options import PathRole, option_field
from tformer_cli.errors import UsageError
from tformer_cli.inspect.views.alignment import VIEW

EXTRACTION = "Links"
"""The panel of options that decide what becomes a link."""


SCORING = "Scores against gold alignments"
"""The panel of options that go with --gold."""


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """Sentences, their translations, and the words of both."""

    source: SourceOption = None
    target_file: str | None = option_field(
        None,
        "Target sentences, one per source line, to align with.",
        shown="the model's translations",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    source_words: str | None = option_field(
        None,
        "The source with spaces between words, if links should count these words.",
        shown="the source's own spaces",
        metavar="FILE",
        role=PathRole.reads_file,
    )
    target_words: str | None = option_field(
        None,
        "The target with spaces between words, if links should count these words.",
        shown="the target's own spaces",
        metavar="FILE",
        role=PathRole.reads_file,
    )

    @property
    def of_pairs(self) -> list[str | None]:
        return [self.target_file, self.source_words, self.target_words]


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Heads that align, and rules by which their weights become links."""

    heads: list[str] | None = option_field(
        None,
        "Cross-attention heads to align with, such as cross.1.3, cross.2 or cross.last; "
        "several are averaged. Repeatable.",
        panel=EXTRACTION,
        shown="those stored by --save, else the last half of the layers",
        metavar="HEADS",
    )
    convention: Literal["naive", "shift"] | None = option_field(
        None,
        "Which decoder position stands for a target token: the one that predicts it "
        "(naive), or the one that has read it (shift; SHIFT-ATT, Chen et al. 2020).",
        panel=EXTRACTION,
        shown="that of the stored heads; naive for --heads; else as unchanged words say",
    )
    threshold: float | None = option_field(
        None,
        "Link all word pairs with at least this attention weight, from 0 to 1.",
        panel=EXTRACTION,
        shown="each target word's largest weight",
        metavar="X",
        min=0.0,
        max=1.0,
    )
    eos: Literal["drop", "keep"] = option_field(
        "drop",
        "The weight on the end of sentence: ignore it (drop), or give a word that attends "
        "most to it no link (keep).",
        panel=EXTRACTION,
    )
    reverse: Path | None = option_field(
        None,
        "A model of the reverse direction, to align both ways.",
        panel=EXTRACTION,
        metavar="MODEL",
        role=PathRole.reads_model,
    )
    method: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = option_field(
        "grow-diag",
        "How to join both directions of --reverse: intersection, union, grow-diag or "
        "grow-diag-final-and.",
        "--symmetrize",
        panel=EXTRACTION,
        metavar="METHOD",
    )


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Gold alignments, and scores against them."""

    gold: str | None = option_field(
        None,
        "Gold alignments (i-j sure, i?j possible) to score every head and layer with.",
        panel=SCORING,
        metavar="FILE",
        role=PathRole.reads_file,
    )
    one_based: bool = option_field(False, "The gold file counts words from 1.", panel=SCORING)
    save: bool = option_field(
        False,
        "Store the best heads in the model directory, as the default for later commands.",
        panel=SCORING,
    )
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
