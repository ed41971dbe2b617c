"""`tformer generate`: what a language model writes after prompts."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Literal, Unpack

from tformer_cli.cli.line_job import FileOptions, render_buffers, write_lines
from tformer_cli.cli.options import (
    AdapterOption,
    DecodingPrecisionOption,
    DeviceOption,
    ModelArgument,
    QuietOption,
    SeedOption,
    ThreadsOption,
    argument,
    opened_model,
    option_field,
    takes_generation_options,
)
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    input_lines,
    results,
    stdin_is_terminal,
    warn_of_bytes,
    warn_of_results,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts, without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.search.generator import Generation, Generator
    from tformer_cli.search.keywords import SearchOverrides

PROMPT = argument(
    "PROMPT",
    'Beginnings of texts; "" starts from nothing. Without any, reads -i or stdin; on a '
    "terminal, starts from nothing.",
    default=None,
)


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """Options of the output."""

    n_best: int = option_field(1, "Texts per prompt; more than one needs --format jsonl.", min=1)
    output_format: Literal["text", "jsonl"] = option_field(
        "text",
        "text: the prompt and its continuation; for prompts from -i or stdin one line each, with "
        "spaces for line breaks. jsonl: one object per prompt.",
        "--format",
    )
    stop: list[str] | None = option_field(
        None,
        "End a text before the first occurrence of TEXT; \\n is a line break. Repeatable.",
        shown="none",
        metavar="TEXT",
    )
    buffer_lines: int | None = option_field(
        None,
        "Prompts to read before continuing a buffer; 1 answers prompt by prompt.",
        panel="Large jobs",
        shown="64; 1 from a terminal",
        min=1,
    )

    @property
    def stops(self) -> list[str]:
        """The texts that end one."""
        # A line end is awkward to type in a shell
        return [text.replace("\\n", "\n") for text in self.stop or ()]


@takes_generation_options
def generate(
    model: ModelArgument,
    prompt: list[str] | None = PROMPT,
    *,
    files: FileOptions,
    writing: WritingOptions,
    adapter: AdapterOption = None,
    device: DeviceOption = "auto",
    precision: DecodingPrecisionOption = "auto",
    seed: SeedOption = 1,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    r"""Continue prompts with a language model.

    The same seed gives the same texts. In float32 a text does not depend on the other prompts. On a
    terminal, a single text appears token by token.

    Examples:
        tformer generate runs/shakespeare "ROMEO:" --temperature 0.8 --max-length 300
        tformer generate runs/shakespeare --stop '\n\n'
        tformer generate runs/shakespeare -i prompts.txt --n-best 3 --format jsonl
    """
    if writing.n_best > 1 and writing.output_format == "text":
        raise UsageError(
            f"--n-best: {writing.n_best} texts per prompt do not fit text output; add "
            "--format jsonl"
        )
    read, is_typed = LineCounts(), files.is_typed(prompt)
    prompts: Iterator[str] | None = None
    if not prompt and files.input_file is None and stdin_is_terminal():
        # Without input at a terminal, users most likely want a text from nothing
        prompt = [""]
    if not prompt or prompt == [STANDARD_STREAM]:
        prompts = input_lines(prompt, files.input_file, read, "--input", quiet=quiet)
    elif files.input_file is not None:
        raise UsageError("--input: prompts are already given as arguments; omit one of the two")
    from tformer_cli.kinds.lines.generate import BUFFER_PROMPTS, format_generation
    from tformer_cli.kinds.lines.job import ResultCounts, computed_by_buffer

    counts = ResultCounts(n_best=writing.n_best)

    def render(generation: "Generation") -> str:
        # A prompt of a file or stdin is a line: N lines in are N lines out
        is_one_line, lists_texts = prompts is not None, writing.n_best > 1
        return format_generation(
            generation, writing.output_format, lists_texts=lists_texts, is_one_line=is_one_line
        )

    with results(files.output) as stream:
        is_seen = is_terminal(stream)
        generator = opened_model(
            model,
            "generate",
            stops=writing.stops,
            adapter=adapter,
            device=device,
            precision=precision,
            seed=seed,
            threads=threads,
            n_best=writing.n_best,
            quiet=quiet,
            **decoding,
        ).generator
        # Python turns bytes of an argument that are not UTF-8 into lone surrogates
        texts = [without_surrogates(text) for text in prompt or ()]
        if prompts is not None:
            size = writing.buffer_lines or (1 if is_typed else BUFFER_PROMPTS)
            generations = computed_by_buffer(prompts, generator.continue_lines, size)
            lines = render_buffers(generations, counts, render)
        elif is_seen and writing.output_format == "text" and _is_streamed(generator, texts):
            lines = render_buffers([_stream(generator, texts, stream)], counts, lambda _: None)
        else:
            lines = render_buffers([generator.generate(texts)], counts, render)
        # A bar would be drawn over a text that is typed or shown on this terminal
        is_hidden = quiet or is_typed or is_seen or prompts is None
        write_lines(
            stream, lines, counts, doing="generating", output=files.output, is_hidden=is_hidden
        )
    warn_of_bytes(read)
    warn_of_results(counts, cut="only the end was read")


def is_terminal(stream: BinaryIO) -> bool:
    """Returns whether a text that is written there is seen while it is written."""
    return stream is sys.stdout.buffer and sys.stdout.isatty()


def _is_streamed(generator: "Generator", prompts: list[str]) -> bool:
    """Returns whether a text can be shown while it is written: it is the only one."""
    return len(prompts) == 1 and generator.writes_straight


def _stream(generator: "Generator", prompts: list[str], stream: BinaryIO) -> "list[Generation]":
    """Writes a prompt and its text token by token."""

    def tell(text: str) -> None:
        stream.write(without_surrogates(text).encode())
        # Else the text appears only when it is complete
        stream.flush()

    tell(prompts[0])
    generations = generator.generate(prompts, on_text=tell)
    tell("\n")
    return generations
