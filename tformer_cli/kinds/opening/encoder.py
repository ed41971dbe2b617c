"""Opening an encoder alone, and the ids of texts or images that it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from tformer_cli.acceleration import has_fast
from tformer_cli.artifacts.model_directory import ModelDirectory, read_model_directory
from tformer_cli.errors import DataError, UsageError
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.kinds.opening.stored_model import DirectoryModel
from tformer_cli.kinds.opening.translator import device_of
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.text.prefetch import buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.fast.native_encoder import CompiledEncoder
    from tformer_cli.model.config import Precision
    from tformer_cli.model.encoder_only import EncoderOnly
    from tformer_cli.search.pooled import TokenHead

TooLong = Literal["truncate", "error"]
Damaged = Literal["error", "skip"]
"""Treatments of images that cannot be read."""
Item = TypeVar("Item")
Result = TypeVar("Result")
BUFFER_LINES = 1024
BUFFER_IDS = 1 << 22
"""Most ids of a buffer; of texts there are fewer by far."""


class DamagedImage(DataError):  # noqa: N818 - of the image, not of a program
    """An image cannot be read; those before it in its buffer can."""

    def __init__(self, message: str, n_before: int) -> None:
        super().__init__(message)
        self.n_before = n_before


def usual_buffer(directory: ModelDirectory) -> int:
    """Returns the lines of a buffer: as many as usual, but of large images only some."""
    return max(1, min(BUFFER_LINES, BUFFER_IDS // directory.config.longest_source))


def computed_by_buffer(
    directory: ModelDirectory,
    lines: Iterable[Item],
    compute: Callable[[list[Item], int], Result],
    buffer_lines: int | None = None,
    max_wait: float | None = None,
) -> Iterator[Result]:
    """Computes something of lines as they come, a buffer at a time.

    Args:
        directory: of the model.
        lines: the texts or names of images, or pairs with them.
        compute: takes a buffer, and the number of its first line.
        buffer_lines: lines of a buffer; None: as many as usual.
        max_wait: seconds after which a buffer is computed although it is not full.

    Raises:
        DamagedImage: if an image cannot be read, after the result of those before it.
    """
    first = 0
    size = usual_buffer(directory) if buffer_lines is None else buffer_lines
    for buffer in buffers(lines, size, max_wait):
        try:
            yield compute(buffer, first)
        except DamagedImage as error:
            if error.n_before:
                yield compute(buffer[: error.n_before], first)
            raise
        first += len(buffer)


def source_ids(
    directory: ModelDirectory, texts: Sequence[str], first_index: int, damaged: Damaged = "error"
) -> tuple[list[list[int]], dict[int, str]]:
    """Encodes texts, or reads the images whose names they are; a blank one has no ids.

    Args:
        directory: of a model.
        texts: the texts or names.
        first_index: number of the first one, from 0.
        damaged: whether an image that cannot be read is an error, or has no ids.

    Returns:
        The ids of each, and what is wrong with images that cannot be read, by their places.

    Raises:
        DamagedImage: naming the line, if an image cannot be read and that is an error.
    """
    side = directory.tokenizer.source
    given = [text if text.strip() else "" for text in texts]
    if not directory.config.reads_images:
        return side.encode_batch(given), {}
    found: list[list[int]] = []
    problems = {}
    for place, text in enumerate(given):
        try:
            found.append(side.encode(text))
        except DataError as error:
            if damaged == "error":
                raise DamagedImage(f"line {first_index + place + 1}: {error}", place) from None
            found.append([])
            problems[place] = str(error)
    return found, problems


def fitting(
    directory: ModelDirectory, ids: Sequence[Sequence[int]], too_long: TooLong, first_index: int
) -> list[Sequence[int]]:
    """Cuts texts off where a model takes no more.

    Args:
        directory: of the model.
        ids: of each text.
        too_long: what becomes of longer ones.
        first_index: number of the first text, from 0.

    Raises:
        DataError: naming the line, if one is too long and `too_long` is "error".
        UsageError: if `too_long` is another word.
    """
    if too_long not in get_args(TooLong):
        raise UsageError(f"--too-long: must be truncate or error; found {too_long!r}")
    longest = directory.config.longest_source
    for number, one in enumerate(ids, first_index + 1) if too_long == "error" else ():
        if len(one) > longest:
            raise DataError(
                f"line {number}: has {len(one)} tokens, but the model takes {longest}; shorten "
                "it, or --too-long truncate"
            )
    return [one[:longest] for one in ids]


@dataclass(frozen=True, kw_only=True)
class OpenedEncoder:
    """An encoder alone ready to read texts, and where and how it computes."""

    directory: ModelDirectory
    place: str
    """Name of the device."""
    precision: Precision
    compiled: CompiledEncoder | None = None
    """The kernels, where they compute the hidden states in place of torch."""
    token_head: TokenHead | None = None
    """What predicts tokens from the kernels' states, if the model does."""
    engine: str = "tformer"

    @property
    def longest(self) -> int:
        """Ids of the longest text, without `</s>`."""
        return self.directory.config.longest_source

    @property
    def reads_images(self) -> bool:
        """True if it reads images, whose names stand in the place of texts."""
        return self.directory.config.reads_images


def open_encoder(
    model: Path | str,
    tasks: Container[TaskKind],
    *,
    device: str = "auto",
    precision: str = "auto",
    threads: int = 0,
    tell: Callable[[str], None] | None = None,
    before_torch: Callable[[], None] | None = None,
    by_kernels: bool = True,
) -> OpenedEncoder:
    """Reads the directory of an encoder alone.

    Args:
        model: the model directory, or a foreign model.
        tasks: those whose models will do.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "auto" and "float32" compute in float32, "bfloat16" products in that.
        threads: CPU threads of the compiled kernels (0: as many as torch would use).
        tell: told of what takes long.
        before_torch: called before torch computes.
        by_kernels: false where only torch will do.

    Raises:
        UsageError: if the device is not there, or the precision is of translation alone.
        ArtifactError: if the directory cannot be used, or the model is of another task.
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise UsageError(f"--precision: encoders do not compute in {precision}; omit it")
    settings = OpeningSettings(device=device, threads=threads, tell=tell, before_torch=before_torch)
    place = device_of(settings)
    path = resolve_model(model, tell, "float32")
    stored, weights = read_model_directory(path, place, tasks=tasks)
    chosen: Precision = "bfloat16" if precision == "bfloat16" else "float32"
    is_fast = place == "cpu" and chosen == "float32" and has_fast()

    def load() -> EncoderOnly:
        settings.prepare_torch()
        encoder = stored.encoder
        if is_fast:
            from tformer_cli.fast.products import pack_layers

            pack_layers(encoder)
        return encoder

    directory = replace(stored, load=load)
    opened = OpenedEncoder(directory=directory, place=place, precision=chosen)
    if is_fast and by_kernels:
        from tformer_cli.fast.native_encoder import compiled_encoder
        from tformer_cli.search.pooled import TokenHead

        model_on_cpu = DirectoryModel(directory, weights, in_integers=False)
        compiled = compiled_encoder(model_on_cpu, tell, threads)
        if not isinstance(compiled, str):
            config = directory.config
            head = TokenHead(config, weights.arrays) if config.head == "tokens" else None
            return replace(opened, compiled=compiled, token_head=head)
    return opened
