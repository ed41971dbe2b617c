"""Every kind of corpus as a stream of sentence pairs; texts are pairs with a blank source."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import hash_file, hash_tree
from tformer_cli.files.remote import path_in
from tformer_cli.sockets import load_place
from tformer_cli.text.config import FORMAT_KEYS, CorpusConfig
from tformer_cli.text.fields import field_names, sides_of
from tformer_cli.text.images.corpora import content_of, labeled_images
from tformer_cli.text.lines import LineCounts, read_lines, without_surrogates
from tformer_cli.wording import count_of, is_blank


class SentencePair(NamedTuple):
    """One aligned example."""

    source: str
    target: str


BLANK = SentencePair("", "")


class CorpusRecord(NamedTuple):
    """One aligned example with its place."""

    number: int
    """Number of its line, or of the example in a dataset, from 1."""
    pair: SentencePair
    lines: tuple[str, ...] = ()
    """The line in each text file of the corpus; none of datasets and the like."""
    fault: str = ""
    """Error in the line of a table, with its place; both sides are then blank."""


Records = Generator[CorpusRecord, None, None]


@dataclass(frozen=True, kw_only=True)
class CorpusFormat:
    """A format of corpora: its reader, and the content that a tokenized copy depends on."""

    read: Callable[[CorpusConfig, str, LineCounts], Records]
    """Yields the examples, given the directory where relative paths start."""
    content: Callable[[CorpusConfig, str], list[str]]
    """Returns texts that differ whenever the pairs do, apart from `source_field` and
    `target_field`."""
    has_lines: bool = True
    """True if the keys name text files, a line a pair."""


def format_of(config: CorpusConfig) -> CorpusFormat:
    if config.format not in FORMATS:
        raise DataError(f"data: there is no reader for {config.format}")
    return FORMATS[config.format]


def text_files(config: CorpusConfig) -> list[str]:
    """Names of the text files of a corpus, as they are written; none of datasets and the like."""
    if not format_of(config).has_lines:
        return []
    return [getattr(config, key) for key in FORMAT_KEYS[config.format]]


def read_corpus(
    config: CorpusConfig, directory: str = "", counts: LineCounts | None = None
) -> Iterator[SentencePair]:
    """Yields the pairs of a corpus of any kind, in order and in bounded memory."""
    return (record.pair for record in read_records(config, directory, counts))


def read_records(
    config: CorpusConfig,
    directory: str = "",
    counts: LineCounts | None = None,
    *,
    whole_rows: bool = False,
    with_faults: bool = False,
) -> Records:
    """Yields the pairs of a corpus with their lines; see `read_corpus`."""
    counts = counts if counts is not None else LineCounts()
    if config.dataset and whole_rows:
        records = _of_dataset(config, directory, whole=True)
    else:
        records = format_of(config).read(config, directory, counts)
    if not with_faults:
        records = _without_faults(records)
    return _only_texts(config.text_field, records) if config.text_field else records


def _without_faults(records: Records) -> Records:
    with closing(records):  # its file, before the error is raised
        for record in records:
            if record.fault:
                raise DataError(record.fault)
            yield record


def _of_object(
    number: int, record: object, fields: tuple[str, str], where: str, lines: tuple[str, ...]
) -> CorpusRecord:
    """The example in a record that `where` names."""
    try:
        sides = sides_of(record, fields, where)
    except DataError as error:
        return CorpusRecord(number, BLANK, lines, str(error))
    return CorpusRecord(number, SentencePair(*map(without_surrogates, sides)), lines)


def _only_texts(field: str, records: Records) -> Records:
    """Puts texts in the place of pairs; formats with fields have them on both sides."""
    with closing(records):
        for record in records:
            text = record.pair.target if field == "target" else record.pair.source
            yield record._replace(pair=SentencePair("", text))


def corpus_name(config: CorpusConfig) -> str:
    if config.source:
        return f"{config.source}, {config.target}"
    for what, split in (
        ("corpus", config.built_in),
        ("ratings", config.ratings),
        ("shapes", config.shapes),
    ):
        if split:
            return f"built-in {what}, {split}"
    if config.algorithmic:
        return f"built-in {config.algorithmic}, {config.split}"
    if config.dataset:
        names = filter(None, (config.dataset, config.dataset_config, config.split))
        return ", ".join(names)
    return config.tsv or config.jsonl or config.text or config.images


def corpus_file(name: str, directory: str) -> Path:
    path = path_in(directory, name)
    # a file may be called so
    if name == "-" and not path.exists():
        raise DataError("-: corpora are read more than once, but stdin only once; name a file")
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


def _content_of_files(config: CorpusConfig, directory: str) -> list[str]:
    files = [corpus_file(name, directory) for name in text_files(config)]
    return [config.format, *map(hash_file, files)]


def _read_aligned(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
    # checked at the call, not when the first pair is asked for
    paths = corpus_file(config.source, directory), corpus_file(config.target, directory)
    return _line_by_line(*paths, counts)


def _line_by_line(source: Path, target: Path, counts: LineCounts) -> Records:
    n_lines = {source: 0, target: 0}
    lines = zip_longest(read_lines(source, counts), read_lines(target, counts))
    for place, (source_line, target_line) in enumerate(lines):
        if source_line is not None and target_line is not None:
            pair = SentencePair(source_line, target_line)
            yield CorpusRecord(place + 1, pair, pair)
            continue
        # both counts are named: their difference often shows what was lost
        longer, shorter = (target, source) if source_line is None else (source, target)
        n_lines = {shorter: place, longer: place + 1 + sum(1 for _ in lines)}
        raise DataError(
            f"{source}, {target}: different numbers of lines ({n_lines[source]:,} and "
            f"{n_lines[target]:,}); give files whose lines correspond"
        )


def _tsv(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
    return _rows(corpus_file(config.tsv, directory), config, counts)


def _rows(path: Path, config: CorpusConfig, counts: LineCounts) -> Records:
    if config.text_field:
        source = target = _column(config.text_field, 1, "text_field")
    else:
        source = _column(config.source_field, 1, "source_field")
        target = _column(config.target_field, 2, "target_field")
    for number, line in enumerate(read_lines(path, counts), start=1):
        cells = line.split("\t")
        if len(cells) < max(source, target):
            fault = (
                f"{path}, line {number}: has {count_of(len(cells), 'column')}, but column "
                f"{max(source, target)} is needed; columns are split at tabs"
                + (f', so give a CSV file as {{ dataset = "{config.tsv}" }}' if "," in line else "")
            )
            yield CorpusRecord(number, BLANK, (line,), fault)
            continue
        pair = SentencePair(cells[source - 1], cells[target - 1])
        yield CorpusRecord(number, pair, (line,))


def _column(field: str, default: int, key: str) -> int:
    if not field:
        return default
    if not (field.isascii() and field.isdigit() and int(field) >= 1):
        raise DataError(f'{key}: must be a column counted from 1 in a TSV file, but is "{field}"')
    return int(field)


def _jsonl(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
    return _objects(corpus_file(config.jsonl, directory), config, counts)


def _objects(path: Path, config: CorpusConfig, counts: LineCounts) -> Records:
    fields = field_names(config)
    for number, line in enumerate(read_lines(path, counts), start=1):
        # a file of objects may end with a blank line
        if is_blank(line):
            continue
        where = f"{path}, line {number}"
        try:
            # files that were joined have marks inside
            record = json.loads(line.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as error:
            fault = f"{where}: is not JSON ({error}); write one object per line"
        else:
            if isinstance(record, dict):
                yield _of_object(number, record, fields, where, (line,))
                continue
            fault = f"{where}: is not a JSON object; write one object per line"
        yield CorpusRecord(number, BLANK, (line,), fault)


BUILT_IN = "tformer_cli.plugins.built_in"


def _built_in_format(
    names: Callable[[CorpusConfig], tuple[str, str]], place: str, *modules: str
) -> CorpusFormat:
    """Returns the format of examples that modules of the plugin `built_in` generate."""

    def read(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
        del directory, counts
        examples: Iterable[tuple[str, str]] = load_place(f"{BUILT_IN}.{place}")(config)
        pairs = enumerate(examples, start=1)
        return (CorpusRecord(number, SentencePair(*pair)) for number, pair in pairs)

    def content(config: CorpusConfig, directory: str) -> list[str]:
        del directory
        # The rules themselves are the content: others would make other sentences
        rules = chain.from_iterable(map(_hashes_of, modules))
        return [*names(config), str(config.pairs), str(config.seed), *rules]

    return CorpusFormat(read=read, content=content, has_lines=False)


def _hashes_of(name: str) -> list[str]:
    module = import_module(f"{BUILT_IN}.{name}")
    if hasattr(module, "__path__"):
        folder = Path(module.__path__[0])
        return [hash_tree(folder, "*.py"), hash_tree(folder, "*.toml")]
    return [hash_file(Path(str(module.__file__)))]


def _dataset(
    config: CorpusConfig,
    directory: str,
    counts: LineCounts,  # noqa: ARG001 - its builders read text
) -> Records:
    return _of_dataset(config, directory)


def _of_dataset(config: CorpusConfig, directory: str, *, whole: bool = False) -> Records:
    # Importing `datasets` takes a second that other corpora need not spend.
    from tformer_cli.text import hub

    dataset, fields = hub.open_dataset(config, directory), field_names(config)
    rows = hub.read_rows(dataset, fields, config.dataset, whole=whole)
    for number, row in enumerate(rows, start=1):
        where = f"{config.dataset}, row {number}"
        lines = (hub.json_line(row, where),) if whole else ()
        yield _of_object(number, row, fields, where, lines)


def _content_of_dataset(config: CorpusConfig, directory: str) -> list[str]:
    from tformer_cli.text.hub import local_path, open_dataset

    path = local_path(config, directory)
    if path is None:
        # A hub dataset's fingerprint follows from its revision, configuration and split.
        content = str(open_dataset(config, directory)._fingerprint)
    else:
        content = hash_tree(path, "*") if path.is_dir() else path.suffix + hash_file(path)
    return ["dataset", config.split, config.dataset_config, content]


def _images(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
    path, labels = (_path_of(name, directory) for name in (config.images, config.labels))
    pairs = labeled_images(Path(path), labels, config.target_field, counts)
    return (CorpusRecord(n, SentencePair(*pair)) for n, pair in enumerate(pairs, start=1))


def _path_of(name: str, directory: str) -> str:
    return str(path_in(directory, name)) if name else ""


def _content_of_images(config: CorpusConfig, directory: str) -> list[str]:
    path, labels = (_path_of(name, directory) for name in (config.images, config.labels))
    return content_of(Path(path), labels)


def _text(config: CorpusConfig, directory: str, counts: LineCounts) -> Records:
    lines = enumerate(read_lines(corpus_file(config.text, directory), counts), start=1)
    return (CorpusRecord(number, SentencePair("", line), (line,)) for number, line in lines)


FORMATS: Mapping[str, CorpusFormat] = MappingProxyType(
    {
        "aligned": CorpusFormat(read=_read_aligned, content=_content_of_files),
        "tsv": CorpusFormat(read=_tsv, content=_content_of_files),
        "jsonl": CorpusFormat(read=_jsonl, content=_content_of_files),
        "dataset": CorpusFormat(read=_dataset, content=_content_of_dataset, has_lines=False),
        "built_in": _built_in_format(
            lambda c: ("built in", c.built_in), "examples:read_grammar", "grammar"
        ),
        "text": CorpusFormat(read=_text, content=_content_of_files),
        "ratings": _built_in_format(
            lambda c: ("ratings", c.ratings), "examples:read_ratings", "ratings", "grammar.choices"
        ),
        "images": CorpusFormat(read=_images, content=_content_of_images, has_lines=False),
        "shapes": _built_in_format(
            lambda c: ("shapes", c.shapes), "examples:read_shapes", "shapes"
        ),
        "algorithmic": _built_in_format(
            lambda c: (c.algorithmic, c.split),
            "examples:read_algorithmic",
            "algorithmic",
            "grammar.choices",
        ),
    }
)
"""Formats by the names of `config.FORMAT_KEYS`."""
