"""`tformer translate`: lines in, lines out."""

import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, BinaryIO, Unpack

import typer

from tformer_cli.cli.console import is_live, note, utf8_line
from tformer_cli.cli.decoding_options import (
    HeadsOffOption,
    TooLongChoice,
    TooLongOption,
    takes_decoding_options,
)
from tformer_cli.cli.line_progress import line_progress
from tformer_cli.cli.options import (
    DecodingPrecisionChoice,
    DecodingPrecisionOption,
    DeviceOption,
    EngineChoice,
    EngineOption,
    ModelArgument,
    OutputOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
)
from tformer_cli.cli.parts_of_input import chosen_lines, opened_output
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    count_of_lines,
    file_lines,
    input_lines,
    say_choices,
    warn_of_bytes,
    warn_of_lengths,
)
from tformer_cli.data.lines import LineCounts, read_lines
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFile
    from tformer_cli.workflows.translate import SearchOverrides, TranslationCounts


class OutputFormatChoice(StrEnum):
    """Values of `--format`."""

    text = "text"
    tsv = "tsv"
    jsonl = "jsonl"
    moses = "moses"


class AlignmentChoice(StrEnum):
    """Values of `--alignments`."""

    pharaoh = "pharaoh"
    soft = "soft"


class InputFormatChoice(StrEnum):
    """Values of `--input-format`."""

    text = "text"
    jsonl = "jsonl"


class EnsembleSpaceChoice(StrEnum):
    """Values of `--ensemble-space`."""

    probability = "probability"
    log = "log"


CHANGES_NOTHING = frozenset(
    {"quiet", "resume", "threads", "device", "buffer_lines", "max_wait", "batch_tokens", "output"}
)
"""Parameters that leave the results as they are: a run may be gone on with under others."""


@takes_decoding_options
def translate(
    ctx: typer.Context,
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="What to translate; without it, -i or stdin."),
    ] = None,
    *,
    input_file: Annotated[
        str | None,
        typer.Option(
            "--input", "-i", metavar="FILE", help="File to translate (- or nothing: stdin)."
        ),
    ] = None,
    output: OutputOption = STANDARD_STREAM,
    n_best: Annotated[
        int, typer.Option(min=1, help="Translations of each line (with tsv, jsonl or moses).")
    ] = 1,
    ban: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Tokens no translation may hold in a row; repeatable."),
    ] = None,
    glossary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Lines of source TAB target: where the source phrase stands, the translation "
            "must hold the target phrase; with TAB ban after them, must not.",
        ),
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MODEL", help="Another model, of one vocabulary, to join in; repeatable."
        ),
    ] = None,
    ensemble_weights: Annotated[
        str | None,
        typer.Option(metavar="W,W,…", help="How much the models count, MODEL's first [equally]."),
    ] = None,
    ensemble_space: Annotated[
        EnsembleSpaceChoice, typer.Option(help="Average probabilities, or their logarithms.")
    ] = EnsembleSpaceChoice.probability,
    buffer_lines: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Lines read before they are translated together; 1 answers line by line "
            "[1024; from a terminal 1].",
        ),
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="Translate a buffer so long after its first line although it is not full.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Translate the I-th of N parts of the input, from 0; `cat` joins the outputs.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on behind what an earlier run of this command has written."
        ),
    ] = False,
    output_format: Annotated[
        OutputFormatChoice,
        typer.Option(
            "--format",
            help="text: a line for a line. tsv: index, source, translation, score. jsonl: an "
            "object a line. moses: index ||| translation ||| features ||| score.",
        ),
    ] = OutputFormatChoice.text,
    input_format: Annotated[
        InputFormatChoice,
        typer.Option(
            help='jsonl: objects with the text under "source"; "target_prefix" begins the '
            'translation, which holds the phrases of the list "required" and none of "banned". '
            "All other fields are passed through to jsonl output."
        ),
    ] = InputFormatChoice.text,
    alignments: Annotated[
        AlignmentChoice | None,
        typer.Option(
            help="Add what each word comes from (tsv, jsonl or moses): links i-j of source and "
            "target words, or for each target word the weights of the source words and of the end "
            "of sentence. By the heads that `tformer inspect-align --save` stored.",
            show_default=False,
        ),
    ] = None,
    token_scores: Annotated[
        bool,
        typer.Option("--token-scores", help="jsonl: the tokens and their log-probabilities, too."),
    ] = False,
    flags: Annotated[
        bool,
        typer.Option(
            "--flags", help="jsonl: name signs of endless repetition or hallucination, too."
        ),
    ] = False,
    too_long: TooLongOption = TooLongChoice.in_parts,
    heads: HeadsOffOption = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = DecodingPrecisionChoice.auto,
    engine: EngineOption = EngineChoice.tformer,
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Translate lines: as many out as in, in order.

    Blank lines stay blank. In float32 a line's translation does not depend on its neighbours.
    """
    if n_best > 1 and output_format == OutputFormatChoice.text:
        raise UsageError(
            f"--n-best: {n_best} translations do not fit a line for a line; "
            "choose --format tsv, jsonl or moses"
        )
    if alignments is not None and output_format == OutputFormatChoice.text:
        raise UsageError(
            "--alignments: text holds translations alone; choose --format tsv, jsonl or moses"
        )
    counts = LineCounts()
    lines = input_lines(text, input_file, counts, "--input")
    from_stdin = (input_file or STANDARD_STREAM) == STANDARD_STREAM and (
        not text or text == [STANDARD_STREAM]
    )
    from_terminal = from_stdin and sys.stdin.isatty()

    from tformer_cli.decoding.demands import read_glossary
    from tformer_cli.decoding.details import Details
    from tformer_cli.decoding.translator import BUFFER_LINES
    from tformer_cli.workflows import translate as workflow

    terms = [] if glossary is None else read_glossary(file_lines(glossary, LineCounts()), glossary)
    settings = {name: value for name, value in ctx.params.items() if name not in CHANGES_NOTHING}
    chosen, lines = chosen_lines(lines, input_file, shard)
    with opened_output(
        output, resume=resume, input_file=input_file, model=model, settings=settings
    ) as (stream, resumed):
        n_done = resumed.done if resumed is not None else 0
        opened = workflow.open_translator(
            model,
            device=device,
            precision=precision.value,
            engine=engine.value,
            threads=threads,
            seed=seed,
            too_long=too_long.value,
            heads=heads or (),
            banned=ban or (),
            ensemble=ensemble or (),
            ensemble_weights=_numbers(ensemble_weights),
            ensemble_space=ensemble_space.value,
            n_best=n_best,
            **decoding,
        )
        say_choices(opened, quiet=quiet)
        aligner = None
        if alignments is not None:
            from tformer_cli.workflows.aligner import Aligner

            aligner = Aligner(opened.directory)
            note(f"aligning by {aligner.choice}", quiet=quiet)
        translated = workflow.TranslationCounts()
        lines = islice(lines, n_done, None)
        buffer = buffer_lines or (1 if from_terminal else BUFFER_LINES)
        output_lines = workflow.translated_text(
            opened.translator,
            lines,
            counts=translated,
            output_format=output_format.value,
            input_format=input_format.value,
            input_name="stdin" if from_stdin else input_file or "arguments",
            lists_hypotheses=n_best > 1,
            glossary=terms,
            details=Details(token_scores=token_scores, flags=flags),
            buffer_lines=buffer,
            first_index=chosen.start + n_done,
            max_wait=max_wait,
            aligner=aligner,
            alignment_format="pharaoh" if alignments is None else alignments.value,
        )
        # A bar would be drawn over results on the same terminal
        hides_bar = from_terminal or (
            output == STANDARD_STREAM and sys.stdout.isatty() and is_live()
        )
        is_counted = not (quiet or hides_bar or from_stdin)
        total = (len(chosen) or _count_lines(input_file)) if is_counted else None
        start = monotonic()
        with line_progress(total, quiet=quiet or hides_bar) as progress:
            _write_all(output_lines, stream, translated, buffer, progress.update, resumed)
    seconds = monotonic() - start
    if not (text or from_terminal):
        rate = translated.lines / max(seconds, 1e-9)
        done = f"{count_of_lines(translated.lines)} in {seconds:.1f} s"
        note(f"{done}, {rate:,.1f} lines/s", quiet=quiet)
    warn_of_bytes(counts)
    warn_of_lengths(translated)


def _numbers(text: str | None) -> list[float] | None:
    """Reads the numbers of `--ensemble-weights`."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f'--ensemble-weights: "{text}" is no list of numbers; write 2,1,1'
        ) from None


def _write_all(
    output_lines: Iterable[str],
    stream: BinaryIO,
    translated: "TranslationCounts",
    buffer_lines: int,
    progress: Callable[[int], None],
    resumed: "ResumableFile | None",
) -> None:
    """Writes lines as UTF-8 and hands them on whenever a buffer is done."""
    n_before = n_marked = resumed.done if resumed is not None else 0
    for line in output_lines:
        n_whole = n_before + translated.lines - 1  # this line may not be its translation's last
        if resumed is not None and n_whole >= n_marked + buffer_lines:
            resumed.mark(n_whole)
            n_marked = n_whole
        stream.write(utf8_line(line))
        if translated.lines % buffer_lines == 0:
            stream.flush()
            progress(translated.lines)


def _count_lines(input_file: str | None) -> int | None:
    """Counts the lines of a file for the time that is left; nothing is known of a stream."""
    if input_file is None or not Path(input_file).is_file():
        return None
    return sum(1 for _ in read_lines(input_file))
