"""`tformer generate`: what a language model writes after prompts."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, Unpack

import typer

from tformer_cli.cli.commands.translate_options import FileOptions
from tformer_cli.cli.help import LARGE_JOBS
from tformer_cli.cli.options import (
    AdapterOption,
    DecodingPrecision,
    DecodingPrecisionOption,
    DeviceOption,
    ModelArgument,
    QuietOption,
    SeedOption,
    ThreadsOption,
    option,
    takes_generation_options,
    takes_groups,
    torch_preparation,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    count_of_lines,
    input_lines,
    note,
    note_choices,
    results,
    stdin_is_terminal,
    utf8_line,
    warn,
    warn_of_bytes,
    warn_of_unknown,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts, without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tformer_cli.search.generator import Generation, Generator
    from tformer_cli.search.keywords import SearchOverrides

PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROMPT",
        help='Beginnings of texts; "" is a text from nothing. Without any, -i or stdin; at a '
        "terminal a text from nothing.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """Options of what is written."""

    n_best: Annotated[
        int, option("Texts per prompt; needs --format jsonl if there are several.", min=1)
    ] = 1
    output_format: Annotated[
        Literal["text", "jsonl"],
        option(
            "text: the prompt and what follows it; for prompts of -i or stdin a line each, line "
            "ends inside become spaces. jsonl: one object per prompt.",
            "--format",
        ),
    ] = "text"
    stop: Annotated[
        list[str] | None,
        option(
            r"End a text before the first occurrence of this one; \n is a line end. Repeatable.",
            shown="none",
            metavar="TEXT",
        ),
    ] = None
    buffer_lines: Annotated[
        int | None,
        option(
            "Prompts read before a buffer is continued; 1 answers prompt by prompt.",
            panel=LARGE_JOBS,
            shown="64; 1 from a terminal",
            min=1,
        ),
    ] = None

    @property
    def stops(self) -> list[str]:
        """The texts that end one."""
        return [text.replace("\\n", "\n") for text in self.stop or ()]

    def check(self) -> None:
        """Refuses several texts where there is room for one.

        Raises:
            UsageError: if there are any.
        """
        if self.n_best > 1 and self.output_format == "text":
            raise UsageError(
                f"--n-best: {self.n_best} texts per prompt do not fit text output; add "
                "--format jsonl"
            )


@takes_generation_options
@takes_groups
def generate(
    model: ModelArgument,
    prompt: PromptArgument = None,
    *,
    files: FileOptions,
    writing: WritingOptions,
    adapter: AdapterOption = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = DecodingPrecision.auto,
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    r"""Continue prompts with a language model.

    The same seed gives the same texts. In float32 a text does not depend on the prompts beside its
    own. On a terminal a single text appears token by token.

    Examples:
        tformer generate runs/shakespeare "ROMEO:" --temperature 0.8 --max-length 300
        tformer generate runs/shakespeare --stop '\n\n'
        tformer generate runs/shakespeare -i prompts.txt --n-best 3 --format jsonl
    """
    writing.check()
    counts = LineCounts()
    is_stdin = files.is_stdin(prompt)
    prompts: Iterable[str] | None = None
    if not prompt and files.input_file is None and stdin_is_terminal():
        prompt = [""]
    if not prompt or prompt == [STANDARD_STREAM]:
        prompts = input_lines(prompt, files.input_file, counts, "--input", quiet=quiet)
    elif files.input_file is not None:
        raise UsageError("--input: prompts are given as arguments already; omit one of the two")
    from tformer_cli.kinds.opening.generator import open_generator

    with results(files.output) as stream:
        opened = open_generator(
            model,
            stops=writing.stops,
            adapter=adapter,
            device=device,
            precision=precision.value,
            seed=seed,
            threads=threads,
            n_best=writing.n_best,
            tell=partial(note, quiet=quiet),
            before_torch=torch_preparation(threads),
            **decoding,
        )
        note_choices(opened, quiet=quiet)
        if prompts is None:
            counts_of_prompts = _continue_arguments(
                opened.generator, [without_surrogates(one) for one in prompt or ()], stream, writing
            )
        else:
            is_typed = is_stdin and stdin_is_terminal()
            n_lines = writing.buffer_lines or (1 if is_typed else None)
            counts_of_prompts = _continue_lines(
                opened.generator,
                prompts,
                stream,
                writing,
                n_lines,
                quiet=quiet or is_typed or is_terminal(stream),
            )
    warn_of_bytes(counts)
    if n_truncated := counts_of_prompts.truncated:
        warn(f"{count_of_lines(n_truncated)} longer than the model takes; only the end was read")
    warn_of_unknown(counts_of_prompts.unknown)


@dataclass
class PromptCounts:
    """Counts of what a model could not read of prompts."""

    truncated: int = 0
    """Prompts whose beginning was not read."""
    unknown: int = 0
    """Their tokens that the model does not know."""

    def add(self, generation: "Generation") -> None:
        """Counts a prompt."""
        self.truncated += generation.is_truncated
        self.unknown += generation.n_unknown


def _continue_arguments(
    generator: "Generator", prompts: list[str], stream: BinaryIO, writing: WritingOptions
) -> PromptCounts:
    """Writes the texts of prompts that are arguments."""
    from tformer_cli.kinds.lines.generate import format_generation

    is_told = (
        writing.output_format == "text"
        and len(prompts) == 1
        and is_terminal(stream)
        and (generator.config.sampling or generator.config.beam_size == 1)
        and generator.config.n_searched == 1
    )
    counts = PromptCounts()
    if is_told:

        def tell(text: str) -> None:
            stream.write(without_surrogates(text).encode())
            stream.flush()

        tell(prompts[0])
        (told,) = generator.generate(prompts, on_text=tell)
        tell("\n")
        counts.add(told)
        return counts
    for one in generator.generate(prompts):
        counts.add(one)
        line = format_generation(
            one, writing.output_format, lists_texts=writing.n_best > 1, is_one_line=False
        )
        stream.write(utf8_line(line))
    return counts


def is_terminal(stream: BinaryIO) -> bool:
    """True if a text that is written there is seen while it is written."""
    return stream is sys.stdout.buffer and sys.stdout.isatty()


def _continue_lines(
    generator: "Generator",
    prompts: "Iterable[str]",
    stream: BinaryIO,
    writing: WritingOptions,
    n_lines: int | None,
    *,
    quiet: bool,
) -> PromptCounts:
    """Writes a line for each prompt."""
    from tformer_cli.kinds.lines.generate import BUFFER_PROMPTS, format_generation

    counts, n_done = PromptCounts(), 0
    with line_progress(None, "generating", quiet=quiet) as progress:
        for buffer in generator.stream(prompts, n_lines or BUFFER_PROMPTS):
            for one in buffer:
                counts.add(one)
                line = format_generation(one, writing.output_format, lists_texts=writing.n_best > 1)
                stream.write(utf8_line(line))
            stream.flush()
            n_done += len(buffer)
            progress.update(n_done)
    return counts
