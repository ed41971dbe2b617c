"""`tformer shortlist`: the target tokens that each source token may become, from a corpus."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tformer_cli.cli.format_choice import check_ending
from tformer_cli.cli.inspect.inspect_align import PairOptions
from tformer_cli.cli.inspect.inspect_view import OpeningArguments, takes_opening_options
from tformer_cli.cli.options import (
    ModelArgument,
    QuietOption,
    option_field,
    refuse,
    torch_preparation,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    note,
    note_choices,
    open_stream,
    results,
    utf8_line,
    warn,
    warn_of_bytes,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tformer_cli.inspect.jobs.align import AlignmentReport, PairTexts
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.plugins.corpora_tools.shortlist import LinkedTokens


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """Alignments that the shortlist is made of."""

    alignments: str | None = option_field(
        None,
        "Word alignments: for each pair a line of Pharaoh links i-j, counted from 0.",
        shown="each target token with the source token that it attends to most",
        role="reads_file",
    )
    units: Literal["words", "pieces"] | None = option_field(
        None,
        "Units that --alignments counts: words, or the pieces that `tformer tokenize encode` "
        "writes.",
        shown="words",
    )

    def check(self, pairs: PairOptions) -> None:
        """Checks that alignments come with pairs, and options about alignments with alignments."""
        if self.alignments is not None and pairs.target_file is None:
            raise UsageError(
                "--alignments: needs the target sentences; name their file with --target-file"
            )
        words = {"source_words": pairs.source_words, "target_words": pairs.target_words}
        if self.alignments is None:
            values = {"units": self.units, **words}
            refuse(values, "only says what --alignments counts; add --alignments or omit it")
        if self.units == "pieces" and any(words.values()):
            raise UsageError(
                "--units: pieces are not words; omit --source-words and --target-words"
            )


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Contents of the shortlist, and its place."""

    frequent: int | None = option_field(
        None, "Allow the N most frequent target tokens in every sentence.", shown="100", min=0
    )
    best: int = option_field(
        100, "Keep the N most probable target tokens of each source token.", min=1
    )
    output: str | None = option_field(
        None,
        "File to write, for --shortlist; - is stdout.",
        "-o",
        shown="MODEL's own, with --save",
        role="writes_new_file",
    )
    save: bool = option_field(
        False,
        "Store the shortlist in the model directory, which then uses it by default.",
    )
    output_format: Literal["safetensors", "text"] = option_field(
        "safetensors",
        "safetensors: for tformer. text: lines `target source probability`, for Marian.",
        "--format",
    )

    def path(self, model: Path) -> str:
        from tformer_cli.artifacts.config_file import SHORTLIST

        if (self.output is None) != self.save:
            raise UsageError("--output: give exactly one of --output and --save")
        if self.output_format == "text":
            if self.save:
                raise UsageError("--save: only stores tformer's own format; omit --format text")
            if self.frequent is not None:
                raise UsageError(
                    "--frequent: Marian takes this number itself (--shortlist FILE N); omit it"
                )
        path = str(model / SHORTLIST) if self.output is None else self.output
        check_ending(path, [self.output_format])
        _check_replaced(path, is_own=self.save)
        return path


def _check_replaced(path: str, *, is_own: bool) -> None:
    """Checks that a file to be replaced is an earlier shortlist, and not a model's own."""
    if open_stream(path) is not None or not (Path(path).is_file() or Path(path).is_dir()):
        return
    from tformer_cli.artifacts.shortlist_file import holds_shortlist

    with suppress(OSError):
        if not is_own and holds_shortlist(Path(path)):
            return
    raise UsageError(
        f"{'--save' if is_own else '--output'}: {path} is already there; move it away first"
    )


@takes_opening_options
def shortlist(
    model: ModelArgument,
    *,
    pairs: PairOptions,
    links: LinkOptions,
    lists: ListOptions,
    quiet: QuietOption = False,
    **opening: Unpack[OpeningArguments],
) -> None:
    """Build a lexical shortlist to speed up translation.

    With a shortlist, each line is translated using only the tokens aligned with its source tokens
    in a corpus, and the most frequent tokens. The corpus should be large and similar to the text
    you will translate. Without --target-file, MODEL translates it first. `tformer benchmark
    --shortlist FILE --shortlist none --reference FILE` measures the effect on speed and quality.

    Examples:
        tformer shortlist runs/quickstart -i train.en --target-file train.fr --save
        tformer shortlist runs/quickstart -i train.en -o lex.safetensors
        tformer shortlist runs/quickstart -i a.en --target-file a.fr --alignments a.align --save
    """
    links.check(pairs)
    path = lists.path(model)
    check_stdin_is_read_once([pairs.source or STANDARD_STREAM, *pairs.of_pairs, links.alignments])
    counts = LineCounts()
    lines = input_lines(None, pairs.source, counts, "--source", quiet=quiet)
    columns = [
        None if name is None else file_lines(name, counts, quiet=quiet)
        for name in (*pairs.of_pairs, links.alignments)
    ]
    from tformer_cli.artifacts.shortlist_file import write_shortlist
    from tformer_cli.inspect.jobs.align import AlignmentReport
    from tformer_cli.plugins.corpora_tools import shortlist as workflow

    with results(path) as stream:
        opened = _open(model, opening, is_aligned=links.alignments is not None, quiet=quiet)
        tokenizer, report = opened.directory.tokenizer, AlignmentReport()
        lexicon = workflow.lexicon_of(tokenizer)
        linked = _link_tokens(opened, lines, columns, links, report, quiet=quiet)
        with line_progress(None, "aligning", quiet=quiet) as progress:
            for pair in linked:
                lexicon.add(*pair)
                progress.update(report.lines)
        # Inside `results`, which then leaves no file
        if not lexicon.n_linked:
            raise DataError("--source: there is no pair to align; give a text and its translation")
        if lists.output_format == "text":
            entries = workflow.lexicon_lines(lexicon, tokenizer, lists.best)
            stream.writelines(map(utf8_line, entries))
        else:
            frequent = workflow.N_FREQUENT if lists.frequent is None else lists.frequent
            write_shortlist(
                stream, lexicon.shortlist(frequent, lists.best, is_joint=tokenizer.is_joint)
            )
    warn_of_bytes(counts)
    if report.truncated:
        warn(f"{count_of_lines(report.truncated)} longer than the model takes; skipped")
    coverage = f"{lexicon.n_linked:,} of {lexicon.n_sources:,} source tokens have targets"
    note(f"{path}: {coverage}, by {count_of_lines(report.lines)}", quiet=quiet)


def _open(model: Path, opening: OpeningArguments, *, is_aligned: bool, quiet: bool) -> "Opened":
    """Opens a model; where alignments are given, only its vocabularies are needed."""
    from tformer_cli.kinds.opening import open_model

    opened = open_model(
        model,
        # Attention is read in float32; given alignments need only the vocabularies
        precision="auto" if is_aligned else "float32",
        # With an earlier shortlist the model would write only what that one allows
        shortlist="none",
        before_torch=torch_preparation(opening["threads"]),
        **opening,
    )
    # With --alignments nothing is computed, so there is no device to name
    if not is_aligned:
        note_choices(opened, quiet=quiet)
    return opened


def _link_tokens(
    opened: "Opened",
    lines: "Iterator[str]",
    columns: "list[Iterator[str] | None]",
    links: LinkOptions,
    report: "AlignmentReport",
    *,
    quiet: bool,
) -> "Iterator[LinkedTokens]":
    """Links the tokens of a corpus as it is given, or by the model's attention."""
    from tformer_cli.inspect.jobs.align import Aligner, read_gold, read_pairs
    from tformer_cli.plugins.corpora_tools import shortlist as workflow

    targets, source_words, target_words, alignments = columns
    pairs: Iterable[PairTexts]
    if targets is None:
        pairs = workflow.translated_pairs(opened.translator, lines)
    else:
        pairs = read_pairs(lines, targets, source_words, target_words)
    if alignments is not None:
        gold = read_gold(alignments, str(links.alignments))
        return workflow.linked_as_given(
            opened.directory, pairs, gold, links.units or "words", report
        )
    aligner = Aligner(opened.directory)
    note(f"aligning by {aligner.choice}", quiet=quiet)
    return workflow.linked_by_model(aligner, pairs, report)
