"""Options of commands that take images."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tformer_cli.cli.options import PathRole, option_field
from tformer_cli.cli.streams import warn
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.kinds.lines.classify import OpenedClassifier
    from tformer_cli.kinds.opening.encoder import OpenedEncoder


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Images in files of many, or in folders."""

    images: Path | None = option_field(
        None,
        "Images of a model of images: a folder of pictures, an idx file, or a table of pixels.",
        shown="none",
        metavar="PATH",
        role=PathRole.reads_directory,
    )
    label_field: str = option_field(
        "",
        "Column of labels in a table of pixels: first, last or its number.",
        shown="last, if there are labels",
        metavar="COLUMN",
    )

    def check(self, *, has_texts: bool) -> None:
        """Refuses to take images twice."""
        if self.label_field and self.images is None:
            raise UsageError("--label-field: is of a table of pixels; add --images PATH")
        if self.images is not None and has_texts:
            raise UsageError("--images: the input is named already; omit one of the two")

    def check_model(self, *, reads_images: bool) -> None:
        """Refuses options of images for a model of texts."""
        if self.images is not None and not reads_images:
            raise UsageError("--images: MODEL reads texts; omit it")

    def labeled(
        self, labels: str, option: str, counts: LineCounts
    ) -> Iterator[tuple[str, str]] | None:
        """Returns the names of the images with their labels, if a path is given."""
        from tformer_cli.text.images.corpora import labeled_images

        if self.images is None:
            return None
        names = (option, "--label-field")
        return labeled_images(self.images, labels, self.label_field, counts, names)

    def names(self, opened: "OpenedClassifier | OpenedEncoder") -> Iterator[str] | None:
        """Returns the names of the images, if a path is given."""
        from tformer_cli.text.images.corpora import image_names

        self.check_model(reads_images=opened.reads_images)
        size = opened.directory.config.image_size
        return None if self.images is None else image_names(self.images, size, self.label_field)


@dataclass(frozen=True, kw_only=True)
class ReadImageOptions(ImageOptions):
    """The same, and those that cannot be read."""

    damaged: Literal["error", "skip"] = option_field(
        "error",
        "Treatment of images that cannot be read: error ends the command, skip leaves a blank "
        "line for each, which jsonl explains, and them out of scores.",
    )

    def check_model(self, *, reads_images: bool) -> None:
        """See `ImageOptions`."""
        super().check_model(reads_images=reads_images)
        if self.damaged == "skip" and not reads_images:
            raise UsageError("--damaged: is of a model of images; omit it")


def warn_of_damaged(n_images: int, outcome: str = "left blank") -> None:
    """Warns of images that could not be read."""
    if n_images:
        warn(f"{count_of(n_images, 'image')} that cannot be read; {outcome}")
