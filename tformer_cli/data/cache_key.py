"""The name of a tokenized corpus in the cache: a hash of all that its content depends on.

Files are hashed by their content, once at every start. Sizes and times
are not trusted instead: a run that resumes must never continue silently with changed data.
"""

import hashlib
import json
from pathlib import Path

from tformer_cli.data.config import CorpusConfig, DataConfig
from tformer_cli.data.corpora import corpus_file
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.errors import DataError

FORMAT = 1
"""Raised when the same inputs come to be stored differently."""
BLOCK_BYTES = 1 << 20


def cache_key(config: CorpusConfig, data: DataConfig, tokenizer: Tokenizer) -> str:
    """Hashes a corpus's content, the filters and the tokenizer; paths and times do not matter.

    Raises:
        DataError: if the corpus cannot be read.
    """
    facts = {
        "format": FORMAT,
        "content": _content(config, data.directory),
        "fields": [config.source_field, config.target_field],
        "filters": [data.max_length, data.max_length_ratio],
        "tokenizer": tokenizer.to_json(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _content(config: CorpusConfig, directory: str) -> list[str]:
    if config.built_in:
        size = [config.built_in, str(config.pairs), str(config.seed)]
        return ["built in", *size, _hash_tree(Path(__file__).parent / "grammar", "*.py")]
    if config.dataset:
        return ["dataset", config.split, config.dataset_config, _dataset(config, directory)]
    names = filter(None, (config.source, config.target, config.tsv, config.jsonl))
    kind = "aligned" if config.source else "tsv" if config.tsv else "jsonl"
    return [kind, *(hash_file(corpus_file(name, directory)) for name in names)]


def _dataset(config: CorpusConfig, directory: str) -> str:
    from tformer_cli.data.hub import local_path, open_dataset

    path = local_path(config, directory)
    if path is None:
        # A hub dataset's fingerprint follows from its revision, configuration and split.
        return str(open_dataset(config, directory)._fingerprint)
    return _hash_tree(path, "*") if path.is_dir() else path.suffix + hash_file(path)


def _hash_tree(directory: Path, pattern: str) -> str:
    files = sorted(path for path in directory.rglob(pattern) if path.is_file())
    names = [f"{path.relative_to(directory).as_posix()} {hash_file(path)}" for path in files]
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal digits.

    Raises:
        DataError: if it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({(error.strerror or str(error)).lower()}); check "
            "the file and its permissions"
        ) from None
    return digest.hexdigest()
