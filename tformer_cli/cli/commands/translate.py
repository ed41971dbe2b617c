"""`tformer translate`: lines in, lines out."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO, Unpack

import typer

from tformer_cli.cli.commands.parts_of_input import chosen_lines, count_lines, opened_output
from tformer_cli.cli.commands.translate_options import (
    AlignmentsOption,
    BanOption,
    BufferLinesOption,
    EnsembleOption,
    EnsembleSpaceChoice,
    EnsembleSpaceOption,
    EnsembleWeightsOption,
    FlagsOption,
    GlossaryOption,
    InputFormatChoice,
    InputFormatOption,
    InputOption,
    MaxWaitOption,
    NBestOption,
    OutputFormatChoice,
    OutputFormatOption,
    ResumeOption,
    ShardOption,
    TextArgument,
    TokenScoresOption,
    weights_of,
)
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
from tformer_cli.cli.text_io import (
    STANDARD_STREAM,
    check_stdin_is_read_once,
    count_of_lines,
    file_lines,
    input_lines,
    say_choices,
    stdin_is_terminal,
    warn_of_bytes,
    warn_of_lengths,
)
from tformer_cli.data.lines import LineCounts
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFile
    from tformer_cli.workflows.translate import TranslationCounts
    from tformer_cli.workflows.translation_options import SearchOverrides


CHANGES_NOTHING = frozenset(
    {"quiet", "resume", "threads", "device", "buffer_lines", "max_wait", "batch_tokens", "output"}
)
"""Parameters that leave the results as they are: a run may be resumed under others."""


@takes_decoding_options
def translate(
    ctx: typer.Context,
    model: ModelArgument,
    text: TextArgument = None,
    *,
    input_file: InputOption = None,
    output: OutputOption = STANDARD_STREAM,
    n_best: NBestOption = 1,
    ban: BanOption = None,
    glossary: GlossaryOption = None,
    ensemble: EnsembleOption = None,
    ensemble_weights: EnsembleWeightsOption = None,
    ensemble_space: EnsembleSpaceOption = EnsembleSpaceChoice.probability,
    buffer_lines: BufferLinesOption = None,
    max_wait: MaxWaitOption = None,
    shard: ShardOption = None,
    resume: ResumeOption = False,
    output_format: OutputFormatOption = OutputFormatChoice.text,
    input_format: InputFormatOption = InputFormatChoice.text,
    alignments: AlignmentsOption = None,
    token_scores: TokenScoresOption = False,
    flags: FlagsOption = False,
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
    """Translate text: one line out for each line in.

    The order is kept. Blank lines stay blank. In float32 a line's translation does not depend on
    its neighbors.

    Examples:
        tformer translate runs/quickstart "The old house is green."
        tformer translate runs/quickstart -i a.en -o a.fr --beam-size 8
        cat a.en | tformer translate runs/quickstart --n-best 3 --format jsonl
    """
    _check_format(output_format, n_best, is_aligned=alignments is not None)
    _check_use(output_format, ensemble, ensemble_weights, token_scores=token_scores, flags=flags)
    if ban and not all(phrase.strip() for phrase in ban):
        raise UsageError("--ban: is empty; name the text that no translation may contain")
    counts = LineCounts()
    lines = input_lines(text, input_file, counts, "--input", quiet=quiet)
    from_stdin = input_file in (None, STANDARD_STREAM) and (not text or text == [STANDARD_STREAM])
    check_stdin_is_read_once([STANDARD_STREAM if from_stdin else "", glossary])
    from_terminal = from_stdin and stdin_is_terminal()

    with _without_garbage_collection():
        from tformer_cli.decoding.demands import read_glossary
        from tformer_cli.decoding.details import Details
        from tformer_cli.decoding.translator import BUFFER_LINES
        from tformer_cli.workflows.open_translator import open_translator
        from tformer_cli.workflows.translate import TranslationCounts, translated_text

    terms = [] if glossary is None else read_glossary(file_lines(glossary, LineCounts()), glossary)
    settings = {name: value for name, value in ctx.params.items() if name not in CHANGES_NOTHING}
    chosen, lines = chosen_lines(lines, input_file, shard)
    with opened_output(
        output, resume=resume, input_file=input_file, model=model, settings=settings
    ) as (stream, resumed):
        n_done = resumed.done if resumed is not None else 0
        opened = open_translator(
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
            ensemble_weights=weights_of(ensemble_weights),
            ensemble_space=ensemble_space.value,
            tell=partial(note, quiet=quiet),
            n_best=n_best,
            **decoding,
        )
        say_choices(opened, quiet=quiet)
        aligner = None
        if alignments is not None:
            from tformer_cli.workflows.aligner import Aligner

            aligner = Aligner(opened.directory)
            note(f"aligning by {aligner.choice}", quiet=quiet)
        translated = TranslationCounts()
        buffers = translated_text(
            opened.translator,
            islice(lines, n_done, None),
            counts=translated,
            output_format=output_format.value,
            input_format=input_format.value,
            input_name="stdin" if from_stdin else input_file or "arguments",
            lists_hypotheses=n_best > 1,
            glossary=terms,
            details=Details(token_scores=token_scores, flags=flags),
            buffer_lines=buffer_lines or (1 if from_terminal else BUFFER_LINES),
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
        total = (len(chosen) or count_lines(input_file)) if is_counted else None
        start = monotonic()
        with line_progress(total, quiet=quiet or hides_bar) as progress:
            _write_all(buffers, stream, translated, progress.update, resumed)
    seconds = monotonic() - start
    if not (text or from_terminal):
        rate = translated.lines / max(seconds, 1e-9)
        done = f"{count_of_lines(translated.lines)} in {seconds:.1f} s"
        note(f"{done}, {rate:,.1f} lines/s", quiet=quiet)
    warn_of_bytes(counts)
    warn_of_lengths(translated)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Within it, what is imported is not searched for garbage, and later not again.

    torch makes some 200,000 objects that live as long as the program does. Looking through them
    while they are made is a twentieth of the time of the import; omitted of every later look, they
    do not delay a translation either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _check_format(output_format: OutputFormatChoice, n_best: int, *, is_aligned: bool) -> None:
    """Refuses options that text output has no place for."""
    if output_format != OutputFormatChoice.text:
        return
    if n_best > 1:
        raise UsageError(
            f"--n-best: {n_best} translations per line do not fit text output; choose "
            "--format tsv, jsonl or moses"
        )
    if is_aligned:
        raise UsageError(
            "--alignments: text output has no place for them; choose --format tsv, jsonl or moses"
        )


def _check_use(
    output_format: OutputFormatChoice,
    ensemble: list[Path] | None,
    ensemble_weights: str | None,
    *,
    token_scores: bool,
    flags: bool,
) -> None:
    """Refuses options that would change nothing where they stand."""
    if output_format != OutputFormatChoice.jsonl and (token_scores or flags):
        option = "--token-scores" if token_scores else "--flags"
        raise UsageError(f"{option}: only jsonl has a place for them; add --format jsonl")
    if ensemble_weights is not None and not ensemble:
        raise UsageError("--ensemble-weights: there is one model; add --ensemble MODEL")


def _write_all(
    buffers: Iterable[list[str]],
    stream: BinaryIO,
    translated: "TranslationCounts",
    progress: Callable[[int], None],
    resumed: "ResumableFile | None",
) -> None:
    """Writes lines as UTF-8 and hands them on whenever a buffer is done."""
    n_before = resumed.done if resumed is not None else 0
    for lines in buffers:
        stream.writelines(map(utf8_line, lines))
        stream.flush()
        if resumed is not None:
            resumed.mark(n_before + translated.lines)
        progress(translated.lines)
