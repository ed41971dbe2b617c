"""The readers of models of other tools, apart from those that `recognizing` knows itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tformer_cli.foreign.foreign_model import ForeignModel
from tformer_cli.sockets import Socket

Convert = Callable[[], ForeignModel]
ConvertAs = Callable[[Literal["float32", "int8"] | None], ForeignModel]
"""Makes a model, with its matrices in float32 or in the integers that it holds."""


def _finds_none(*_: object) -> None:
    return None


class ModelReader(NamedTuple):
    """Recognizes the models of a tool; each function returns what converts one, or None."""

    find: Callable[[Path], Convert | None] = _finds_none
    """Looks at a directory or file."""
    open_checkpoint: Callable[[Path, Any], Convert | None] = _finds_none
    """Looks at what a checkpoint of torch holds, which was read without executing anything."""
    find_packed: Callable[[Path], ConvertAs | None] = _finds_none
    """Looks at a directory or file of models whose matrices may be integers."""


READERS: Socket[ModelReader] = Socket(
    "readers",
    ModelReader,
    # OpenNMT-py and nanoGPT have keys of their own; fairseq is what else holds a "model"
    {
        **{
            name: f"tformer_cli.plugins.legacy.{name}:READER"
            for name in ("opennmt", "nanogpt", "fairseq")
        },
        **{
            name: f"tformer_cli.plugins.interchange.{name}.importing:READER"
            for name in ("ctranslate2", "marian")
        },
    },
)
