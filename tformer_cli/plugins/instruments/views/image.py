"""Where a model of images looks: each head's row of the pooled state over the image.

The row is that of the class token, the mean of the patches' rows, or halfway between both, as the
model pools (see `weighting.Pooled`); by head, and by rollout and ALTI through all layers. A
head's attention distance is the mean distance in pixels between a patch and those that it attends
to, weighted by attention, over all patches (Dosovitskiy et al. 2021, appendix D.7): small of heads
that look near by, large of those that look everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.errors import DataError
from tformer_cli.inspect.data import pack_for_page, to_json
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.view import Selections, SentenceView, Subject
from tformer_cli.show.document import BLANK, Block, Room, Table, Texts, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.heads.names import Inspected
    from tformer_cli.inspect.record import HeadsRecord
    from tformer_cli.model.config import ModelConfig

SCHEMA = "tformer.image/1"
Kind = Literal["head", "rollout", "alti"]
NAMES: dict[Kind, str] = {"head": "head", "rollout": "attention rollout", "alti": "ALTI"}
CONVENTIONS = (
    "weights[r][c] is the share of the patch in row r and column c; with class_token, the share of "
    "the class token itself, they sum to 1. distance is the attention distance in pixels."
)


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Where one head looks, or all layers together."""

    name: str  # The head's name, ``enc.2.1``; or ``rollout`` or ``alti``
    kind: Kind
    shares: Tensor  # (h, w) shares of the patches
    class_token: float  # Share of the class token; 0 without one
    distance: float | None = None  # Attention distance in pixels; only for heads

    @property
    def label(self) -> str:
        return self.name if self.kind == "head" else NAMES[self.kind]

    @property
    def peak(self) -> tuple[int, int]:
        place = int(self.shares.argmax())
        return divmod(place, self.shares.shape[1])


@dataclass(frozen=True, kw_only=True, repr=False)
class ImageRecord(SentenceRecord):
    """Where a model looks at one image."""

    sentence: HeadsRecord  # The name of the image and its label
    pixels: NDArray[np.uint8] | None  # (H, W, C) as the model reads it; None: blank
    patch_size: int  # Pixels of a side of a patch
    row: str  # Whose row is shown, such as "class token" or "mean of the patches"
    looked: tuple[Looked, ...] = ()  # Heads first, then rollout and ALTI

    @property
    def rows(self) -> list[list[Looked]]:
        """Both ways through all layers, then the heads of each layer."""
        by_layer: dict[str, list[Looked]] = {}
        for looked in self.looked:
            layer = looked.name.rpartition(".")[0] if looked.kind == "head" else ""
            by_layer.setdefault(layer, []).append(looked)
        return [by_layer.pop("", []), *by_layer.values()]


def read_image_record(model: Inspected, sentence: HeadsRecord) -> ImageRecord:
    import numpy as np
    import torch

    from tformer_cli.model.base import N_SPECIAL_TOKENS
    from tformer_cli.plugins.instruments.weighting import Pooled, weighted_maps

    config = model.config
    row = Pooled(config).row_name
    if sentence.maps is None:
        return ImageRecord(sentence=sentence, pixels=None, patch_size=config.patch_size, row=row)
    maps = sentence.maps
    looked = []
    for head in sentence.heads:
        weights = torch.from_numpy(maps.weights(head))
        distance = attention_distance(weights, config)
        looked.append(_take_row(str(head), "head", weights, config, distance))
    ways: tuple[Literal["rollout", "alti"], ...] = ("rollout", "alti")
    for way in ways:
        (rolled,) = torch.from_numpy(weighted_maps(model, maps, way).enc[-1])
        looked.append(_take_row(way, way, rolled, config))
    ids = np.array(maps.source_ids) - N_SPECIAL_TOKENS
    return ImageRecord(
        sentence=sentence,
        pixels=ids.astype(np.uint8).reshape(config.image_size),
        patch_size=config.patch_size,
        row=row,
        looked=tuple(looked),
    )


def _take_row(
    name: str, kind: Kind, weights: Tensor, config: ModelConfig, distance: float | None = None
) -> Looked:
    """Picks the row of the pooled state from weights (S, S)."""
    from tformer_cli.plugins.instruments.weighting import Pooled

    row = Pooled(config).row(weights)
    first = int(config.class_token)
    return Looked(
        name=name,
        kind=kind,
        shares=row[first:].view(config.grid),
        class_token=row[0].item() if first else 0.0,
        distance=distance,
    )


def attention_distance(weights: Tensor, config: ModelConfig) -> float:
    """Mean distance in pixels between patches and their keys, by weights (S, S) of a head."""
    import torch

    patches = weights[int(config.class_token) :, int(config.class_token) :].double()
    rows, columns = config.grid
    grid = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
    distances = torch.cdist(grid, grid) * config.patch_size
    totals = patches.sum(dim=1).clamp_min(1e-12)
    return float(((patches * distances).sum(dim=1) / totals).mean())


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Settings of the view."""

    heads: Selections = ()


class ImageView(SentenceView[ImageRecord]):
    """`tformer inspect-image`: heat maps over an image."""

    name = "image"
    title = "Where the heads look"
    help = """Show where an image model looks: each head's heat map over the image.

    The attention row that the model pools (the class token's, the mean of the patches', or halfway
    between) is drawn over the image: for each head, and through all layers by attention rollout and
    ALTI. Each head also gets its mean attention distance in pixels. TEXT is the name of an image,
    as for `tformer classify`. With --format png, the first row of the sheet has the image, rollout
    and ALTI; each further row has the heads of a layer.

    Examples:
        tformer inspect-image runs/shapes shapes:test:1#0 --format html -o heads.html
        tformer inspect-image runs/digits t10k-images.gz#7 --format png -o heads.png
        tformer inspect-image runs/shapes photo.png --heads enc.last
    """
    Options = ImageOptions
    tasks = ("image", "embed")
    formats = ("text", "jsonl", "html", "png")
    draws_svg = False

    def read(self, subject: Subject, sentence: HeadsRecord, options: ImageOptions) -> ImageRecord:
        if not subject.model.config.reads_images:
            raise DataError("MODEL: reads texts, not images; use `tformer inspect-heads`")
        return read_image_record(subject.model, sentence)

    def report(self, subject: Subject, sentence: HeadsRecord, options: Any) -> ImageRecord | None:
        if not subject.model.config.reads_images:
            return None
        return self.read(subject, sentence, ImageOptions())

    def json(self, record: ImageRecord) -> dict[str, Any]:
        names = "id=name kind distance class_token weights=shares"
        return {
            "schema": SCHEMA,
            "image_size": None if record.pixels is None else list(record.pixels.shape),
            **to_json(record, "patch_size row"),
            "conventions": CONVENTIONS,
            "maps": [to_json(looked, names) for looked in record.looked],
        }

    def tab(
        self, record: ImageRecord, options: ImageOptions | None, *, is_alone: bool
    ) -> dict[str, Any]:
        from tformer_cli.show.html import data_url
        from tformer_cli.show.png import png_of

        assert record.pixels is not None  # noqa: S101 - blank ones have no tab
        data = self.json(record)
        for looked, of_map in zip(record.looked, data["maps"], strict=True):
            of_map["label"] = looked.label
        shown: dict[str, Any] = pack_for_page(data, bits=8)
        return shown | {"image": data_url(png_of(in_color(record.pixels)))}

    def blocks(self, record: ImageRecord, options: ImageOptions, room: Room) -> Iterator[Block]:
        yield Texts(record.sentence.texts)
        if record.pixels is None:
            return
        height, width, _ = record.pixels.shape
        says = f"{height}×{width} pixels, patches of {record.patch_size}×{record.patch_size}"
        yield text(f"{says}; row of the {record.row}", style="dim")
        yield BLANK
        with_class = any(looked.class_token for looked in record.looked)
        rows = [
            [
                looked.name,
                "" if looked.distance is None else f"{looked.distance:.1f}",
                *([f"{looked.class_token:.2f}"] if with_class else []),
                "{}, {}".format(*looked.peak),
                f"{looked.shares.max().item():.2f}",
            ]
            for looked in record.looked
        ]
        head = ("looks", "distance", *(["class"] if with_class else []), "most at", "share")
        yield Table(head=head, rows=rows)

    def page(self, records: Sequence[ImageRecord], options: ImageOptions) -> str:
        from tformer_cli.show.document import Document, Picture, Section
        from tformer_cli.show.html import render_html
        from tformer_cli.show.png import png_of
        from tformer_cli.text.images.named import short_name

        sections = []
        for record in records:
            label = record.sentence.labeled if record.sentence.probability is not None else ""
            heading = ": ".join(filter(None, (short_name(record.sentence.source), label)))
            pictures = tuple(
                tuple(Picture(png=png_of(picture), caption=caption) for picture, caption in row)
                for row in _pictures(record)
            )
            legend = (
                f"Shares of the row of the {record.row}: the stronger the orange, the larger, "
                "relative to the largest."
            )
            sections.append(Section(title=heading, pictures=pictures, legend=legend))
        return render_html(Document(title=self.title, sections=sections))

    def file(self, record: ImageRecord, output_format: str, options: Any = None) -> bytes:
        return sheet([[picture for picture, _ in row] for row in _pictures(record)])


def _pictures(record: ImageRecord) -> list[list[tuple[NDArray[np.uint8], tuple[str, ...]]]]:
    """Rows of pictures with captions: the image and its maps through all layers come first."""
    assert record.pixels is not None  # noqa: S101 - blank ones are skipped or refused before
    pixels = record.pixels
    rows = [
        [(over_image(pixels, looked.shares.double().numpy()), _caption(looked)) for looked in row]
        for row in record.rows
    ]
    rows[0].insert(0, (enlarge_image(pixels), ("the image",)))
    return rows


def _caption(looked: Looked) -> tuple[str, ...]:
    parts = [] if looked.distance is None else [f"distance {looked.distance:.1f} pixels"]
    parts += [f"class token {looked.class_token:.2f}"] if looked.class_token else []
    return (looked.label, *parts)


VIEW = ImageView()


SHORTER_SIDE = 144  # Least pixels of the shorter side of a picture
GAP = 6  # Pixels between the pictures of a sheet
_HOT = (255.0, 96.0, 0.0)
_DIMMED = 0.65  # Share of its brightness that an image keeps below a map


def in_color(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    color: NDArray[np.uint8] = pixels[..., :3]
    return color if color.shape[2] == 3 else color[..., :1].repeat(3, axis=2)


def enlarge_image(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Enlarges an image (H, W, C) by a whole number to three channels, its pixels as squares."""
    factor = max(1, -(-SHORTER_SIDE // min(pixels.shape[:2])))
    large: NDArray[np.uint8] = in_color(pixels).repeat(factor, axis=0).repeat(factor, axis=1)
    return large


def over_image(pixels: NDArray[np.uint8], shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draws shares (h, w) of patches over their enlarged image.

    The image is gray and dimmed; the largest share is orange, 0 shows only the image.
    """
    import numpy as np

    picture = enlarge_image(pixels).astype(np.float64)
    gray = picture.mean(axis=2, keepdims=True) * _DIMMED
    strength = shares / max(float(shares.max()), 1e-12)
    height, width = picture.shape[:2]
    cells = strength.repeat(height // shares.shape[0], axis=0).repeat(
        width // shares.shape[1], axis=1
    )[..., None]
    mixed: NDArray[np.float64] = np.array(_HOT) * 0.75 * cells + gray * (1.0 - 0.75 * cells)
    return np.rint(mixed).astype(np.uint8)


def sheet(rows: Sequence[Sequence[NDArray[np.uint8]]]) -> bytes:
    """Puts pictures of one size in rows on a white PNG."""
    import numpy as np

    from tformer_cli.show.png import png_of

    height, width = rows[0][0].shape[:2]
    n_columns = max(map(len, rows))
    shape = (len(rows) * (height + GAP) - GAP, n_columns * (width + GAP) - GAP, 3)
    canvas = np.full(shape, 255, np.uint8)
    for number, row in enumerate(rows):
        for place, picture in enumerate(row):
            top, left = number * (height + GAP), place * (width + GAP)
            canvas[top : top + height, left : left + width] = picture
    return png_of(canvas, is_signed=True)
