"""Corpora that a user names by their files or by a recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tformer_cli.data.config import CorpusConfig, DataConfig
from tformer_cli.data.corpora import read_corpus
from tformer_cli.data.languages import FUNCTION_WORDS, SCRIPTS, main_code
from tformer_cli.data.lines import OPENERS, read_lines
from tformer_cli.data.quality.examine import held_out_keys
from tformer_cli.errors import UsageError
from tformer_cli.recipe import load_recipe, recipe_names

TSV, JSONL = (".tsv",), (".jsonl", ".ndjson", ".json")
WHAT_TO_GIVE = "name SOURCE and TARGET, whose lines correspond, or one .tsv or .jsonl file"


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Where the sentences of a table are, and in which languages they are."""

    source_field: str = ""
    """Column or field of the source; see `CorpusConfig`."""
    target_field: str = ""
    """That of the target."""
    source_language: str = ""
    """Code of the source language; empty: by the ending of the file, if it is one."""
    target_language: str = ""
    """That of the target language."""


@dataclass(frozen=True, kw_only=True)
class GivenData:
    """Corpora to examine, and sentences that they must not have."""

    data: DataConfig
    held_out: frozenset[int] = field(default=frozenset())
    """Keys of sentences."""
    is_recipe: bool = False
    """True if a recipe names them."""


def given_data(
    files: Sequence[str], fields: Fields | None = None, held_out: Sequence[str] = ()
) -> GivenData:
    """Returns the corpora that are named.

    Args:
        files: two aligned files, one .tsv or .jsonl file, or a recipe: then all corpora that it
            trains on, and those that it validates on are held out.
        fields: of tables, and languages.
        held_out: files with sentences that training must not see: text, .tsv or .jsonl.

    Raises:
        UsageError: if these are other files.
        RecipeError: if a recipe cannot be read.
        DataError: if a file that is held out cannot be read.
    """
    fields = fields or Fields()
    keys: frozenset[int] = frozenset().union(*(_keys_of_file(file, fields) for file in held_out))
    if not _is_recipe(files):
        corpus = corpus_of(files, fields)
        source, target = languages_of(corpus, fields)
        data = DataConfig(train=(corpus,), source_language=source, target_language=target)
        return GivenData(data=data, held_out=keys)
    if fields.source_field or fields.target_field:
        raise UsageError("--source-field, --target-field: are for a file; the recipe has its own")
    recipe = load_recipe(files[0])
    if recipe.task.kind != "translate":
        raise UsageError(
            f'{files[0]}: task.kind is "{recipe.task.kind}", but checks are of sentence pairs; '
            "name a recipe of translation, or files"
        )
    data = recipe.data
    for corpus in data.valid:
        sides = (side for pair in read_corpus(corpus, data.directory) for side in pair)
        keys |= held_out_keys(sides)
    return GivenData(data=data, held_out=keys, is_recipe=True)


def corpus_of(files: Sequence[str], fields: Fields) -> CorpusConfig:
    """Returns the corpus in two aligned files or in one table.

    Raises:
        UsageError: if these are other files.
    """
    source_field, target_field = fields.source_field, fields.target_field
    if len(files) == 2:
        if source_field or target_field:
            raise UsageError("--source-field, --target-field: aligned files have no fields")
        return CorpusConfig(source=files[0], target=files[1])
    ending = ending_of(files[0]) if len(files) == 1 else ""
    if ending in TSV:
        return CorpusConfig(tsv=files[0], source_field=source_field, target_field=target_field)
    if ending in JSONL:
        return CorpusConfig(jsonl=files[0], source_field=source_field, target_field=target_field)
    if len(files) == 1:
        raise UsageError(f"{files[0]}: is one file of text; {WHAT_TO_GIVE}")
    raise UsageError(f"FILE…: found {len(files)} files; {WHAT_TO_GIVE}")


def languages_of(corpus: CorpusConfig, fields: Fields) -> tuple[str, str]:
    """The codes of the languages: those given, else the endings of aligned files."""
    found = []
    for given, file in (
        (fields.source_language, corpus.source),
        (fields.target_language, corpus.target),
    ):
        ending = ending_of(file).removeprefix(".") if file else ""
        is_code = main_code(ending) in FUNCTION_WORDS.keys() | SCRIPTS.keys()
        found.append(given or (ending if is_code else ""))
    return found[0], found[1]


def ending_of(file: str) -> str:
    """The ending of a file's name, without that of a compressed one."""
    return Path(plain_name(file)).suffix.lower()


def plain_name(file: str) -> str:
    """The name of a file without its directory and the ending of a compressed one."""
    path = Path(file)
    return path.stem if path.suffix in OPENERS else path.name


def _is_recipe(files: Sequence[str]) -> bool:
    return len(files) == 1 and (ending_of(files[0]) == ".toml" or files[0] in recipe_names())


def _keys_of_file(file: str, fields: Fields) -> frozenset[int]:
    if ending_of(file) in (*TSV, *JSONL):
        pairs = read_corpus(corpus_of([file], fields))
        return held_out_keys(side for pair in pairs for side in pair)
    return held_out_keys(read_lines(file))
