"""Options of `translate`: constraints, ensembles, formats, large jobs and their parts."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from tformer_cli.cli.help import CONSTRAINTS, ENSEMBLES, FORMATS, LARGE_JOBS
from tformer_cli.cli.line_job import FileOptions, count_lines
from tformer_cli.cli.options import PathRole, option_field
from tformer_cli.cli.streams import (
    STANDARD_STREAM,
    check_not_compressed,
    file_lines,
    note,
    results,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts, shard_range
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.artifacts.resumable import ResumableFiles
    from tformer_cli.kinds.opening import Opened
    from tformer_cli.search.constraints import Term


TextArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Sentences to translate; without any, -i or stdin."),
]


@dataclass(frozen=True, kw_only=True)
class ConstraintOptions:
    """Phrases that translations must or must not contain."""

    ban: list[str] | None = option_field(
        None,
        "Phrase that must not occur in a translation as whole words. Repeatable.",
        panel=CONSTRAINTS,
        metavar="TEXT",
    )
    glossary: str | None = option_field(
        None,
        "Glossary for constrained decoding. Each line is SOURCE TAB TARGET: if the source "
        "phrase occurs, the translation must contain the target phrase. With TAB ban at the "
        "end, it must not.",
        panel=CONSTRAINTS,
        metavar="FILE",
        role=PathRole.reads_file,
    )

    def arguments(self) -> dict[str, Any]:
        """Returns the banned phrases as an argument of `open_model`."""
        if self.ban and not all(phrase.strip() for phrase in self.ban):
            raise UsageError("--ban: is empty; name the text that no translation may contain")
        return {"banned": self.ban or ()}

    def terms(self) -> "list[Term]":
        """Reads the glossary."""
        from tformer_cli.search.constraints import read_glossary

        if self.glossary is None:
            return []
        return read_glossary(file_lines(self.glossary, LineCounts()), self.glossary)


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """Models that decode together with MODEL."""

    ensemble: list[Path] | None = option_field(
        None,
        "Another model to decode with; it must have the same vocabulary. Repeatable.",
        panel=ENSEMBLES,
        metavar="MODEL",
        role=PathRole.reads_model,
    )
    ensemble_weights: str | None = option_field(
        None,
        "Weights of the models, MODEL's first.",
        panel=ENSEMBLES,
        shown="equal",
        metavar="W,W,…",
    )
    ensemble_space: Literal["probability", "log"] = option_field(
        "probability",
        "Average the models' probabilities, or their log-probabilities.",
        panel=ENSEMBLES,
    )

    def arguments(self) -> dict[str, Any]:
        """Returns them as arguments of `open_model`."""
        if self.ensemble_weights is not None and not self.ensemble:
            raise UsageError("--ensemble-weights: there is one model; add --ensemble MODEL")
        try:
            given = self.ensemble_weights
            weights = None if given is None else [float(weight) for weight in given.split(",")]
        except ValueError:
            raise UsageError(
                f'--ensemble-weights: "{self.ensemble_weights}" is not a list of numbers; write '
                "2,1,1"
            ) from None
        return {
            "ensemble": self.ensemble or (),
            "ensemble_weights": weights,
            "ensemble_space": self.ensemble_space,
        }


@dataclass(frozen=True, kw_only=True)
class LargeJobOptions:
    """Buffers, shards and interrupted jobs."""

    buffer_lines: int | None = option_field(
        None,
        "Lines read before a buffer is translated; 1 answers line by line.",
        panel=LARGE_JOBS,
        shown="1024; 1 from a terminal",
        min=1,
    )
    max_wait: float | None = option_field(
        None,
        "Translate a buffer this long after its first line, even if it is not full.",
        panel=LARGE_JOBS,
        shown="no limit",
        metavar="SECONDS",
        min=0.0,
    )
    shard: str | None = option_field(
        None,
        "Translate only part I of N of the input, I from 0. `cat` joins the outputs.",
        panel=LARGE_JOBS,
        shown="all",
        metavar="I/N",
    )
    resume: bool = option_field(
        False, "Continue an interrupted translation; needs -i and -o.", panel=LARGE_JOBS
    )


@dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """Formats of input and output, and the contents of the output."""

    n_best: int = option_field(
        1,
        "Translations per line, an n-best list; needs --format tsv, jsonl or moses. "
        "Beyond the beam size it raises the beam.",
        min=1,
    )
    output_format: Literal["text", "tsv", "jsonl", "moses"] = option_field(
        "text",
        "text: one translation per line. tsv: index, source, translation, score. jsonl: "
        "one object per line. moses: index ||| translation ||| features ||| score.",
        "--format",
    )
    input_format: Literal["text", "jsonl"] = option_field(
        "text",
        'jsonl: one object per line, with the text in "source". Optional: "target_prefix" '
        'begins the translation, phrases in "required" must occur in it, phrases in "banned" '
        "must not. Other fields are passed through to jsonl output.",
        panel=FORMATS,
    )
    alignments: Literal["pharaoh", "soft"] | None = option_field(
        None,
        "Add word alignments to tsv, jsonl or moses. pharaoh: links i-j of source and "
        "target words. soft: for each target word, the attention weights of the source words "
        "and the end of sentence. `tformer inspect-align --save` finds and stores the best "
        "heads first.",
        panel=FORMATS,
    )
    token_scores: bool = option_field(
        False, "Add tokens and their log-probabilities to jsonl.", panel=FORMATS
    )
    flags: bool = option_field(
        False,
        "Add flags for repetition, dropped sentences, unseen words and hallucination to jsonl.",
        panel=FORMATS,
    )

    def check(self) -> None:
        """Refuses details that the format cannot hold."""
        if self.output_format == "text" and self.n_best > 1:
            raise UsageError(
                f"--n-best: {self.n_best} translations per line do not fit text output; choose "
                "--format tsv, jsonl or moses"
            )
        if self.output_format == "text" and self.alignments is not None:
            raise UsageError(
                "--alignments: text output has no place for them; choose --format tsv, jsonl or "
                "moses"
            )
        if self.output_format != "jsonl" and (self.token_scores or self.flags):
            option = "--token-scores" if self.token_scores else "--flags"
            raise UsageError(f"{option}: only jsonl has a place for them; add --format jsonl")

    def arguments(self, opened: "Opened", *, quiet: bool) -> dict[str, Any]:
        """Returns them as arguments of `translated_text`, an aligner of the model included."""
        from tformer_cli.search.formats import Details

        arguments = {
            "output_format": self.output_format,
            "input_format": self.input_format,
            "lists_hypotheses": self.n_best > 1,
            "details": Details(token_scores=self.token_scores, flags=self.flags),
        }
        if self.alignments is None:
            return arguments
        from tformer_cli.inspect.jobs.align import Aligner

        aligner = Aligner(opened.directory)
        note(f"aligning by {aligner.choice}", quiet=quiet)
        return {**arguments, "aligner": aligner, "alignment_format": self.alignments}


def parse_shard(text: str) -> tuple[int, int]:
    """Reads I/N, I from 0; launchers provide it as `--shard $RANK/$WORLD_SIZE`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f'--shard: "{text}" is not I/N with I from 0 to N - 1; write 0/4')
    return int(match[1]), int(match[2])


def chosen_lines(
    lines: Iterator[str], file: str | None, shard: str | None
) -> tuple[range, Iterator[str]]:
    """Returns the numbers of the lines to translate, and these lines."""
    if shard is None:
        return range(0), lines
    index, count = parse_shard(shard)
    n_lines = count_lines(file)
    if n_lines is None:
        raise UsageError("--shard: the lines have to be counted first; give a file with --input")
    chosen = shard_range(n_lines, index, count)
    return chosen, islice(lines, chosen.start, chosen.stop)


@contextmanager
def opened_output(
    files: FileOptions, model: Path, settings: Mapping[str, object], *, resume: bool
) -> Iterator[tuple[BinaryIO, "ResumableFiles | None"]]:
    """Opens the output as `results` does or, to resume, behind the lines that are done."""
    output, input_file = files.output, files.input_file
    if not resume:
        with results(output) as stream:
            yield stream, None
        return
    if output == STANDARD_STREAM or input_file is None or not Path(input_file).is_file():
        raise UsageError("--resume: works from a file to a file; give --input and --output")
    from tformer_cli.artifacts.config_file import WEIGHTS
    from tformer_cli.artifacts.resumable import resumable_file
    from tformer_cli.files.regular_file import hash_file

    if Path(output).is_dir():
        raise UsageError(f"--output: {output} is a directory; name a file")
    check_not_compressed(output)
    origin = {
        "input": hash_file(Path(input_file)),
        "model": hash_file(model / WEIGHTS) if (model / WEIGHTS).is_file() else "",
        "settings": json.dumps(settings, sort_keys=True, default=str),
    }
    with resumable_file(Path(output).resolve(), origin) as file:
        if file.done:
            note(f"{output}.part: {count_of(file.done, 'line')} done; resuming after them")
        yield file.stream, file
