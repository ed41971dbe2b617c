"""Pixels as tokens: an image is the ids of its bytes, so that code for texts serves images."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.structure import StructureError, structure
from tformer_cli.text.images.decoding import Pixels, Scaling, scale_image
from tformer_cli.text.images.named import LARGEST_PIXEL, read_image, short_name
from tformer_cli.text.tokenizer import FILE_NAME, VERSION, OneSidedTokenizer, Span, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_PIXEL = 4
"""Id of the byte 0, after the special tokens."""
N_IDS = FIRST_PIXEL + LARGEST_PIXEL + 1
# Cache of images: validation reads the same ones again and again.
_KEPT_BYTES = 1 << 26
_LARGEST_SIDE = 1 << 13


@dataclass(frozen=True, kw_only=True)
class _File:
    """Content of the `tokenizer.json` of a model of images."""

    tformer_tokenizer: int
    kind: str
    scaling: Scaling
    patch_size: int
    pixel_max: int = LARGEST_PIXEL


class ImageTokenizer(OneSidedTokenizer):
    """Names of images to the ids of their pixels, (H, W, C) flattened; both sides are the same."""

    algorithm = "images"

    def __init__(self, scaling: Scaling, patch_size: int, pixel_max: int = LARGEST_PIXEL) -> None:
        self.scaling, self.patch_size, self.pixel_max = scaling, patch_size, pixel_max
        n_bytes = int(np.prod(scaling.size))
        # the cache, the loader and budgets count the ids of a patch as one token
        self.ids_per_token = patch_size * patch_size * scaling.size[2]
        self.ids_per_text = n_bytes
        # by bytes, not by images: a large model's images are a hundred times as large
        self._bytes = lru_cache(maxsize=max(1, _KEPT_BYTES // n_bytes))(self._read)

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> ImageTokenizer:
        try:
            file = structure(_File, json.loads(text))
        except (StructureError, ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{where}: is damaged ({reason}); restore the file") from None
        height, width, channels = file.scaling.size
        patch = file.patch_size
        is_sound = (
            file.tformer_tokenizer == VERSION
            and 1 <= patch <= min(height, width) <= max(height, width) <= _LARGEST_SIDE
            and 1 <= channels <= 4
            and 1 <= file.pixel_max < 1 << 31
        )
        if not is_sound:
            raise DataError(f"{where}: is damaged or of another version; restore the file")
        return cls(file.scaling, patch, file.pixel_max)

    def to_json(self) -> str:
        scaling = asdict(self.scaling)
        if self.scaling.odd_margins == "down":
            del scaling["odd_margins"]  # as in files of versions that knew no other way
        record = {
            "tformer_tokenizer": VERSION,
            "kind": self.algorithm,
            "scaling": scaling,
            "patch_size": self.patch_size,
            "pixel_max": self.pixel_max,
        }
        return json.dumps(record, indent=1) + "\n"

    def pixels(self, name: str) -> Pixels:
        read = read_image(name, self.scaling.size, self.pixel_max)
        return scale_image(read, self.scaling, short_name(name))

    def _read(self, name: str) -> bytes:
        return self.pixels(name).tobytes()

    def with_new_tokens(self, words: Sequence[str]) -> Tokenizer:
        raise DataError(f"new tokens: images have no words, but there are {len(words)}; omit them")

    @property
    def vocab_size(self) -> int:
        return N_IDS

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each image, row by row, channels last; a blank name has none."""
        ids = (
            np.frombuffer(self._bytes(name), np.uint8).astype(np.int32) + FIRST_PIXEL
            if name.strip()
            else np.empty(0, np.int32)
            for name in texts
        )
        return [row.tolist() for row in ids]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """See `TokenizerSide`: each pixel has the whole name."""
        return [
            (ids, [(0, len(text))] * len(ids))
            for text, ids in zip(texts, self.encode_phrases(texts), strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The values of pixels, a name by which their image is read again."""
        return " ".join(str(value - FIRST_PIXEL) for value in ids if value >= FIRST_PIXEL)

    @property
    def piece_bytes(self) -> list[bytes]:
        """None has a text."""
        return [b""] * N_IDS

    @property
    def _labels(self) -> list[str]:
        return ["<pad>", "<unk>", "<s>", "</s>", *map(str, range(LARGEST_PIXEL + 1))]
