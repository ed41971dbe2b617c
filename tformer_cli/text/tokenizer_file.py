"""The file of a tokenizer: it says which kind of tokenizer reads it."""

import re
from importlib import import_module
from pathlib import Path
from typing import cast

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_bounded, read_regular
from tformer_cli.text.tokenizer import FILE_NAME, MAX_FILE_BYTES, Tokenizer

_JOINT = "joint_tokenizer.JointTokenizer"
"""Class of files that Hugging Face `tokenizers` can read."""
_READERS = {
    "pieces": "pieces.PieceTokenizer",
    "images": "images.tokenizer.ImageTokenizer",
    "bytes": "foreign_pieces.BytePieceTokenizer",
    "wordpiece": "foreign_pieces.WordPieceTokenizer",
    "sentencepiece": "sentencepiece.tokenizer.SentencePieceTokenizer",
}
"""Classes by the kind that a file of tformer names."""
_FOREIGN = re.compile(r'\s*\{\s*"tformer_tokenizer"(?:\s*:\s*\d+\s*,\s*"kind"\s*:\s*"(\w+)")?')
"""Beginning of such a file, and the kind."""


def read_tokenizer(path: Path) -> Tokenizer:
    """Reads a `tokenizer.json`, or the one in a model directory."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        read = read_regular if path.is_dir() else read_bounded
        text = read(file, MAX_FILE_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{file}: is not UTF-8 text; name a tokenizer.json") from None
    except FileNotFoundError:
        raise DataError(f"{file}: no such tokenizer; check the path") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(f"{file}: cannot be read ({reason}); name a tokenizer.json") from None
    return parse_tokenizer(text, where=str(file))


def parse_tokenizer(text: str, where: str = FILE_NAME) -> Tokenizer:
    """Reads the text of a `tokenizer.json`; `where` names it in messages."""
    foreign = _FOREIGN.match(text)
    if foreign is None:
        reader = _JOINT
    else:  # what is damaged or of a later version is refused by SentencePiece's
        reader = _READERS.get(foreign[1] or "", _READERS["sentencepiece"])
    module, _, name = reader.rpartition(".")
    made = getattr(import_module(f"tformer_cli.text.{module}"), name).parse(text, where)
    return cast("Tokenizer", made)
