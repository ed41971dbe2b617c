"""Settings of corpora and tokenizers: the recipe's `[data]` and `[tokenizer]` tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from tformer_cli.files.remote import shown_url
from tformer_cli.settings import FRACTION, Limits, at_least, between, check_limits
from tformer_cli.sockets import load_place
from tformer_cli.text.tokenizer import MOST_PIECES, Normalization

Algorithm = Literal["bpe", "unigram", "word", "char", "byte"]
TextKind = Literal["lines", "stream"]
MOST_PAIRS = 10_000_000
"""Most pairs of the built-in corpus; with more, the grammar runs out after hours."""
FEWEST_PIECES = 5
"""The special tokens and something to say."""
LARGEST_WEIGHT = 1e6
"""Largest weight of a corpus among others."""

FORMAT_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "aligned": ("source", "target"),
        "tsv": ("tsv",),
        "jsonl": ("jsonl",),
        "dataset": ("dataset",),
        "built_in": ("built_in",),
        "text": ("text",),
        "ratings": ("ratings",),
        "images": ("images",),
        "shapes": ("shapes",),
        "algorithmic": ("algorithmic",),
    }
)
"""Formats of corpora, and the fields of `CorpusConfig` that name a corpus of each."""

SPLIT_KEYS = ("built_in", "ratings", "shapes")
ONLY_IMAGES = ("images", "shapes")
"""Formats that hold images with labels ..."""
IMAGE_FORMATS = (*ONLY_IMAGES, "dataset")
"""... and those that may hold them."""
"""Fields that name a split of what is built in."""
TEXT_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "jsonl": "text",
        "dataset": "text",
        "tsv": "1",
        **dict.fromkeys(("built_in", "ratings", "algorithmic"), "source"),
    }
)
"""Formats that may have a text in place of a pair, and where it is by default."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One corpus: exactly one of aligned files, TSV, JSONL, a dataset, built in, text or images."""

    source: str = ""
    """File of source sentences, one per line (with `target`); `.gz`, `.xz`, `.bz2` and `.zst` are
    read."""
    target: str = ""
    """File of target sentences, aligned with `source` line by line."""
    tsv: str = ""
    """Tab-separated file, one pair per line."""
    jsonl: str = ""
    """JSONL file, one object per pair."""
    dataset: str = ""
    """Hugging Face dataset: a hub name, or a local directory or Parquet, JSON, CSV, Arrow file."""
    dataset_config: str = ""
    """Configuration name of the dataset, if it has several."""
    split: str = "train"
    """Split of the dataset, of which slices such as `train[:1000]` work; or "train", "valid" or
    "test" of an algorithmic task."""
    built_in: str = ""
    """Split of the built-in English-French corpus: "train", "valid" or "test"."""
    ratings: str = ""
    """Split of the built-in ratings, sentences with 1 to 5 stars: "train", "valid" or "test"."""
    images: str = ""
    """Images with labels: a folder with a folder of pictures for each label; an idx file (MNIST's
    format); or a table, each line the values of an image's pixels and its label."""
    labels: str = ""
    """Labels of an idx file, idx or text, a label a line (default: the file that MNIST's names go
    with, `train-labels-idx1-ubyte`)."""
    shapes: str = ""
    """Split of the built-in shapes, small pictures: "train", "valid" or "test"."""
    algorithmic: str = ""
    """Built-in algorithmic task, strings with their answers: "copy", "reverse", "sort", "parity" or
    "brackets"; `split` names their split."""
    pairs: Annotated[int, between(1, MOST_PAIRS)] = 50_000
    """Training pairs of the built-in corpus, or sentences, pictures or strings of the others, to
    generate."""
    seed: Annotated[int, at_least(0)] = 1
    """Seed of what is built in."""
    text: str = ""
    """File of text for a language model, which has no source."""
    text_field: str = ""
    """Where the text for a language model is, which has no source: a field of JSONL or of a
    dataset (default "text"), a TSV column (default 1), or "source" or "target" of what is built
    in (default "source")."""
    source_field: str = ""
    """Where the source is: a JSON or dataset field (dots descend: `translation.en`; default
    "source"), or a TSV column counted from 1 (default 1)."""
    target_field: str = ""
    """Where the target is: a field (default "target"), a TSV column (default 2), or the column of
    labels in a table of pixels: "first", "last" (default) or its number."""
    weight: Annotated[
        float,
        Limits(
            f"above 0 and at most {LARGEST_WEIGHT:g}",
            {"exclusiveMinimum": 0, "maximum": LARGEST_WEIGHT},
        ),
    ] = 1.0
    """How often each pair is used per epoch: 2 is twice, 0.5 every other epoch on average."""

    def __post_init__(self) -> None:
        formats = [keys for keys in FORMAT_KEYS.values() if any(getattr(self, key) for key in keys)]
        if len(formats) != 1:
            all_of_them = ", ".join(" and ".join(keys) for keys in FORMAT_KEYS.values())
            named = " and ".join(" and ".join(keys) for keys in formats) or "none of them"
            raise ValueError(f"must have exactly one of {all_of_them}; found {named}")
        if bool(self.source) != bool(self.target):
            missing = "target" if self.source else "source"
            raise ValueError(f"{missing}: is missing; aligned files come in pairs")
        for name in SPLIT_KEYS:
            split = getattr(self, name)
            if split not in ("", "train", "valid", "test"):
                raise ValueError(f'{name}: must be "train", "valid" or "test", but is "{split}"')
        self._check_algorithmic()
        self._check_text_field()
        if self.labels and not self.images:
            raise ValueError("labels: are those of images; name both, or neither")
        check_limits(self)

    def _check_algorithmic(self) -> None:
        if not self.algorithmic:
            return
        # Tokenizers are read with these settings, and need no generator of strings
        tasks: Mapping[str, object] = load_place("tformer_cli.plugins.built_in.algorithmic:TASKS")
        if self.algorithmic not in tasks:
            named = ", ".join(f'"{name}"' for name in tasks)
            raise ValueError(f'algorithmic: must be one of {named}, but is "{self.algorithmic}"')
        if self.split not in ("train", "valid", "test"):
            raise ValueError(f'split: must be "train", "valid" or "test", but is "{self.split}"')

    def _check_text_field(self) -> None:
        if not self.text_field:
            return
        if self.format not in TEXT_FIELDS:
            raise ValueError("text_field: only for JSONL, datasets, TSV and built-in data; omit it")
        is_built_in = TEXT_FIELDS[self.format] == "source"
        if is_built_in and self.text_field not in ("source", "target"):
            raise ValueError(
                f'text_field: must be "source" or "target" of built-in data, but is '
                f'"{self.text_field}"'
            )

    @property
    def is_text(self) -> bool:
        """True if its examples are texts, without a source."""
        return bool(self.text or self.text_field)

    @property
    def format(self) -> str:
        """Name of its format in `FORMAT_KEYS`."""
        names = (name for name, keys in FORMAT_KEYS.items() if getattr(self, keys[0]))
        return next(names)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Sources of sentence pairs, and filters of them."""

    source_language: str = ""
    """Code of the source language (`en`); stored in the model directory."""
    target_language: str = ""
    """Code of the target language; stored in the model directory."""
    directory: str = ""
    """Relative paths of corpora start here (default: the working directory)."""
    origin: str = ""
    """Where the data come from; shown when a corpus file is missing."""
    train: tuple[CorpusConfig, ...]
    """Training corpora, mixed by their weights."""
    valid: tuple[CorpusConfig, ...] = ()
    """Validation corpora, joined; without any, training does not validate."""
    max_length: Annotated[int, at_least(1)] = 256
    """Longest side of a training pair, in tokens; longer pairs are skipped and counted."""
    max_length_ratio: Annotated[
        float,
        Limits(
            "0 (off) or at least 1",
            {"minimum": 1},
            off=0,
        ),
    ] = 0.0
    """Largest ratio of the longer side of a pair to the shorter, in tokens; pairs above it are
    skipped (0: keep all)."""
    cache_directory: str = ""
    """Cache of tokenized corpora (default: `$XDG_CACHE_HOME/tformer`, else
    `~/.cache/tformer`)."""
    text: TextKind = "lines"
    """Texts of a language model: "lines": each line is one, with a beginning and an end; "stream":
    the files are one text each, line ends included, which is cut into blocks of `max_length`
    tokens."""

    pixel_max: Annotated[int, between(1, 65535)] = 255
    """Largest value of pixels in tables, which becomes white."""
    scale_images: bool = False
    """Scale images of other sizes than `model.image_size` to it, whatever their shape; otherwise
    they are refused."""

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("train: name at least one corpus")
        if url := shown_url(self.cache_directory):
            raise ValueError(f"cache_directory: {url} is not on this machine; name a path here")
        check_limits(self)


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Settings of the tokenizer."""

    algorithm: Algorithm = "bpe"
    """"bpe" (byte-level, loses nothing), "unigram", "word", "char" or "byte"."""
    vocab_size: int = 8000
    """Entries of the vocabulary, the four special tokens included (not used by "byte")."""
    joint: bool = True
    """One vocabulary serves both languages (the paper, section 5.1); false: each has its own, of
    `vocab_size` entries, which needs `model.tied_embeddings` = "decoder" or "none". A model then
    predicts tokens of the target language only, which takes less time."""
    normalization: Normalization = "nfc"
    """Treatment of text before it is cut: "nfc" composes letters and their accents, and reads
    special spaces of sources as spaces and nothing unseen in them, such as soft hyphens; "none"."""
    path: str = ""
    """A trained `tokenizer.json` (or model directory) to use instead of training one."""
    new_tokens: tuple[str, ...] = ()
    """Words, such as `"<medical>"`, that become one piece each where they stand between spaces; for
    a run that starts from a model with a "bpe" tokenizer, or from an imported one."""
    bpe_dropout: Annotated[float, FRACTION] = 0.0
    """Chance of skipping each merge while training (Provilkov et al. 2020); "bpe" only."""

    def __post_init__(self) -> None:
        has_bytes = self.algorithm in ("bpe", "unigram") and not self.path
        least = FEWEST_PIECES + 255 if has_bytes else FEWEST_PIECES
        if not least <= self.vocab_size <= MOST_PIECES:
            why = f' for "{self.algorithm}" (256 bytes and 4 special tokens)' if has_bytes else ""
            raise ValueError(
                f"vocab_size: must be {least} to {MOST_PIECES}{why}, but is {self.vocab_size}"
            )
        check_limits(self)
        if not self.joint and self.algorithm == "byte":
            raise ValueError('joint: "byte" has the same pieces for all languages; omit it')
        if self.bpe_dropout and self.algorithm != "bpe" and not self.path:
            raise ValueError(
                f'bpe_dropout: needs algorithm = "bpe", but algorithm is "{self.algorithm}"'
            )
