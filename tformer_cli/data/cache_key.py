"""The name of a tokenized corpus in the cache: a hash of everything that decides its content.

Files are hashed by content, once at every start; each format declares the content to hash beside
its reader (`corpora.FORMATS`). Sizes and times are not trusted instead: a run that resumes must
never continue silently with changed data.
"""

import hashlib
import json
from collections.abc import Container, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.data.config import FORMAT_KEYS, CorpusConfig, DataConfig
from tformer_cli.data.corpora import format_of
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.errors import DataError

FORMAT = 1
"""Version of the stored form, raised when the same inputs are stored differently."""
KNOWN_OF_CORPUS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(chain.from_iterable(FORMAT_KEYS.values()), ANY),
        # part of a format's content
        **dict.fromkeys(("split", "dataset_config", "pairs", "seed", "labels"), ANY),
        **dict.fromkeys(("source_field", "target_field", "text_field"), ANY),
        "weight": ANY,  # of the mixture: does not matter
    }
)
"""Settings of a corpus that `cache_key` takes account of."""
KNOWN_OF_DATA: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(("max_length", "max_length_ratio"), ANY),
        "text": ("lines", "stream"),
        **dict.fromkeys(("pixel_max", "scale_images"), ANY),  # part of the tokenizer of images
        # do not matter: names, places, and which corpora there are
        **dict.fromkeys(
            ("source_language", "target_language", "directory", "origin", "train", "valid",
             "cache_directory"),
            ANY,
        ),
    }
)  # fmt: skip
"""Settings of data that `cache_key` takes account of."""


def cache_key(config: CorpusConfig, data: DataConfig, tokenizer: Tokenizer) -> str:
    """Hashes a corpus's content, the filters and the tokenizer; paths and times do not matter."""
    for settings, known in ((config, KNOWN_OF_CORPUS), (data, KNOWN_OF_DATA)):
        unknown = unknown_setting(settings, known)
        if unknown is not None:
            raise DataError(f"data: the cache of tokenized corpora does not know {unknown}")
    facts = {
        "format": FORMAT,
        "content": format_of(config).content(config, data.directory),
        "fields": [config.source_field, config.target_field],
        "filters": [data.max_length, data.max_length_ratio],
        "tokenizer": tokenizer.to_json(),
        **({"text": data.text} if config.is_text and data.text != "lines" else {}),
        **({"text_field": config.text_field} if config.text_field else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
