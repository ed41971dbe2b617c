"""Every kind of parallel corpus as a stream of sentence pairs."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from tformer_cli.data.config import CorpusConfig
from tformer_cli.data.fields import field_names, text_of
from tformer_cli.data.lines import LineCounts, read_lines, without_surrogates
from tformer_cli.errors import DataError
from tformer_cli.wording import count_of


class SentencePair(NamedTuple):
    """One aligned example."""

    source: str
    target: str


def read_corpus(
    config: CorpusConfig, directory: str = "", counts: LineCounts | None = None
) -> Iterator[SentencePair]:
    """Yields the pairs of a corpus of any kind, in order and in bounded memory.

    Args:
        config: which corpus.
        directory: where relative paths start (empty: the working directory).
        counts: told the lines read from files and those that were not UTF-8.

    Raises:
        DataError: if a file is missing or damaged, sides differ in length, or a record is not a
            pair; it names the file and line.
    """
    counts = counts if counts is not None else LineCounts()
    if config.source:
        paths = corpus_file(config.source, directory), corpus_file(config.target, directory)
        return _aligned(*paths, counts)
    if config.tsv:
        return _tsv(corpus_file(config.tsv, directory), config, counts)
    if config.jsonl:
        return _jsonl(corpus_file(config.jsonl, directory), config, counts)
    if config.built_in:
        return _built_in(config)
    return _dataset(config, directory)


def corpus_name(config: CorpusConfig) -> str:
    """Name of a corpus in messages."""
    if config.source:
        return f"{config.source}, {config.target}"
    if config.built_in:
        return f"built-in corpus, {config.built_in}"
    if config.dataset:
        names = filter(None, (config.dataset, config.dataset_config, config.split))
        return ", ".join(names)
    return config.tsv or config.jsonl


def corpus_file(name: str, directory: str) -> Path:
    """The path of a corpus file.

    Raises:
        DataError: if it is missing or not an ordinary file: corpora are read several times.
    """
    path = Path(directory) / Path(name).expanduser()
    if path.is_dir():
        raise DataError(f"{path}: is a directory; name a file")
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    if not path.is_file():
        raise DataError(
            f"{path}: is not an ordinary file, but corpora are read more than once; name "
            "an ordinary file"
        )
    return path


def _aligned(source: Path, target: Path, counts: LineCounts) -> Iterator[SentencePair]:
    n_lines = {source: 0, target: 0}
    lines = zip_longest(read_lines(source, counts), read_lines(target, counts))
    for place, (source_line, target_line) in enumerate(lines):
        if source_line is not None and target_line is not None:
            yield SentencePair(source_line, target_line)
            continue
        longer, shorter = (target, source) if source_line is None else (source, target)
        n_lines = {shorter: place, longer: place + 1 + sum(1 for _ in lines)}
        raise DataError(
            f"{source}, {target}: different numbers of lines ({n_lines[source]:,} and "
            f"{n_lines[target]:,}); give files whose lines correspond"
        )


def _tsv(path: Path, config: CorpusConfig, counts: LineCounts) -> Iterator[SentencePair]:
    source = _column(config.source_field, 1, "source_field")
    target = _column(config.target_field, 2, "target_field")
    for number, line in enumerate(read_lines(path, counts), start=1):
        cells = line.split("\t")
        if len(cells) < max(source, target):
            raise DataError(
                f"{path}, line {number}: has {count_of(len(cells), 'column')}, but column "
                f"{max(source, target)} is asked for; columns are split at tabs"
                + (f', so give a CSV file as {{ dataset = "{config.tsv}" }}' if "," in line else "")
            )
        yield SentencePair(cells[source - 1], cells[target - 1])


def _column(field: str, default: int, key: str) -> int:
    if not field:
        return default
    if not (field.isascii() and field.isdigit() and int(field) >= 1):
        raise DataError(f'{key}: must be a column counted from 1 in a TSV file, but is "{field}"')
    return int(field)


def _jsonl(path: Path, config: CorpusConfig, counts: LineCounts) -> Iterator[SentencePair]:
    source, target = field_names(config)
    for number, line in enumerate(read_lines(path, counts), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: is not JSON ({error}); write one object per line") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: is not a JSON object; write one object per line")
        pair = (text_of(record, field, where) for field in (source, target))
        yield SentencePair(*map(without_surrogates, pair))


def _built_in(config: CorpusConfig) -> Iterator[SentencePair]:
    from tformer_cli.grammar.generate import generate_corpus, split_sizes

    stream = generate_corpus(config.pairs, config.seed)
    wanted = (pair for split, pair in stream if split == config.built_in)
    # The test corpus of millions of pairs is complete long before the training corpus.
    n_pairs = split_sizes(config.pairs)[config.built_in]
    for pair in islice(wanted, n_pairs):
        yield SentencePair(pair.source, pair.target)


def _dataset(config: CorpusConfig, directory: str) -> Iterator[SentencePair]:
    # Importing `datasets` takes a second that other corpora need not spend.
    from tformer_cli.data.hub import open_dataset, read_fields

    dataset = open_dataset(config, directory)
    fields: Iterable[tuple[str, str]] = read_fields(dataset, field_names(config), config.dataset)
    for source, target in fields:
        yield SentencePair(source, target)
