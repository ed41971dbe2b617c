"""Commands of encoders: texts or images in, a result for each out.

Apart from `line_job`, because a line to be translated waits for all that its command imports.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from tformer_cli.cli.line_job import FileOptions, render_buffers, write_lines
from tformer_cli.cli.options import (
    DecodingPrecisionOption,
    DeviceOption,
    QuietOption,
    ThreadsOption,
    opened_model,
    option_field,
)
from tformer_cli.cli.streams import (
    count_of_lines,
    input_lines,
    results,
    warn,
    warn_of_bytes,
    warn_of_results,
)
from tformer_cli.errors import UsageError
from tformer_cli.kinds import kind_of, reads_names
from tformer_cli.settings import Option, dataclass
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.text.tokenizer import TokenizerSide

TextsArgument = Annotated[
    list[str] | None,
    Option("Texts; without any, reads -i or stdin.", metavar="TEXT", is_argument=True),
]


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Images in files of many, or in folders."""

    images: Path | None = option_field(
        None,
        "Images, for an image model: a folder of pictures, an idx file, or a table of pixels.",
        shown="none",
        metavar="PATH",
        role="reads_directory",
    )
    label_field: str = option_field(
        "",
        "Label column in a table of pixels: first, last or its number.",
        shown="last, if there are labels",
        metavar="COLUMN",
    )

    def check(self, *, has_texts: bool) -> None:
        """Refuses to take images twice."""
        if self.label_field and self.images is None:
            raise UsageError("--label-field: only for a table of pixels; add --images PATH")
        if self.images is not None and has_texts:
            raise UsageError("--images: the input is already given; omit one of the two")

    def check_model(self, config: "ModelConfig") -> None:
        """Refuses options of images for a model of texts."""
        if self.images is not None and not reads_names(config):
            raise UsageError("--images: MODEL reads texts; omit it")

    def read_labeled_images(
        self, labels: str, option: str, counts: LineCounts
    ) -> Iterator[tuple[str, str]] | None:
        """Returns the names of the images with their labels, if a path is given."""
        from tformer_cli.text.images.corpora import labeled_images

        if self.images is None:
            return None
        names = (option, "--label-field")
        return labeled_images(self.images, labels, self.label_field, counts, names)

    def names(self, config: "ModelConfig") -> Iterator[str] | None:
        """Returns the names of the images, if a path is given."""
        from tformer_cli.text.images.corpora import image_names

        self.check_model(config)
        if self.images is None:
            return None
        return image_names(self.images, config.image_size, self.label_field)


@dataclass(frozen=True, kw_only=True)
class ReadImageOptions(ImageOptions):
    """The same, and those that cannot be read."""

    damaged: Literal["error", "skip"] = option_field(
        "error",
        "For images that cannot be read: stop (error), or write a blank line for each, with the "
        "reason in jsonl, and leave them out of scores (skip).",
    )

    def check_model(self, config: "ModelConfig") -> None:
        super().check_model(config)
        if self.damaged == "skip" and not reads_names(config):
            raise UsageError("--damaged: only for image models; omit it")


@dataclass(frozen=True, kw_only=True)
class LineJob(FileOptions):
    """Input and output, long lines, buffers and the machine of an encoder's command."""

    too_long: Literal["truncate", "error"] = option_field(
        "truncate",
        "For lines longer than the model takes: cut them off (truncate) or stop (error).",
    )
    buffer_lines: int | None = option_field(
        None,
        "Lines to read before computing a buffer; 1 answers line by line.",
        panel="Large jobs",
        shown="1024; 1 from a terminal",
        min=1,
    )
    max_wait: float | None = option_field(
        None,
        "Compute a buffer at the latest this long after its first line.",
        panel="Large jobs",
        shown="no limit",
        metavar="SECONDS",
        min=0.0,
    )
    device: DeviceOption = "auto"
    precision: DecodingPrecisionOption = "auto"
    threads: ThreadsOption = 0
    quiet: QuietOption = False

    def run(
        self,
        verb: "Verb",
        doing: str,
        model: Path,
        texts: list[str] | None,
        render: Callable[[Any], str | None],
        *,
        pictures: ReadImageOptions | None = None,
        write: Callable[["Opened", BinaryIO, Iterable[Any]], Iterable[Any]] | None = None,
        gap_names: Callable[["TokenizerSide"], list[str]] | None = None,
        **settings: Any,  # noqa: ANN401 - of each verb
    ) -> None:
        """Reads lines, computes a result for each, writes it and counts what to warn of."""
        read, images = LineCounts(), None
        if pictures is not None:
            pictures.check(has_texts=bool(texts) or self.input_file is not None)
            images, settings["damaged"] = pictures.images, pictures.damaged
        text_lines: Iterator[str] = iter(())
        if images is None:
            text_lines = input_lines(texts, self.input_file, read, "--input", quiet=self.quiet)
        # Who types lines waits for each answer; a buffer would hold them back
        is_typed = images is None and self.is_typed(texts)
        from tformer_cli.kinds.lines.job import ResultCounts, computed_by_buffer, usual_buffer

        counts = ResultCounts()
        # The output first: an unwritable one is an error at once, not after the model is loaded
        with results(self.output) as stream:
            opened = opened_model(
                model,
                verb,
                device=self.device,
                precision=self.precision,
                threads=self.threads,
                quiet=self.quiet,
            )
            lines = (pictures and pictures.names(opened.config)) or text_lines
            size = self.buffer_lines or (1 if is_typed else usual_buffer(opened.directory))
            compute, _ = kind_of(opened.config).line_computation(opened, verb)
            buffers: Iterable[list[Any]] = computed_by_buffer(
                lines,
                lambda buffer, first: compute(buffer, first_index=first, **settings),
                size,
                self.max_wait,
            )
            write_lines(
                stream,
                render_buffers(
                    buffers if write is None else write(opened, stream, buffers), counts, render
                ),
                counts,
                doing=doing,
                output=self.output,
                total=lambda: self.count(texts) if images is None else None,
                is_hidden=self.quiet or is_typed,
            )
        # Warnings last on stderr, where they are not scrolled away by the progress
        warn_of_bytes(read)
        if gap_names is not None and counts.unchanged:
            names = " or ".join(gap_names(opened.directory.tokenizer.source))
            warn(f"{count_of_lines(counts.unchanged)} without a gap ({names}); unchanged")
        warn_of_results(counts, quiet=self.quiet)
