"""Corpora that a user names by their files or by a recipe."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.quality.checks import asked_checks, checks_for
from tformer_cli.plugins.corpora_tools.quality.examine import Corpora
from tformer_cli.plugins.corpora_tools.quality.facts import (
    LABELED,
    PAIRS,
    TEXTS,
    CorpusKind,
    Detector,
)
from tformer_cli.plugins.corpora_tools.quality.minhash import HeldOut
from tformer_cli.plugins.corpora_tools.quality.model_scores import ModelScores
from tformer_cli.plugins.corpora_tools.quality.settings import CheckSettings, Fields
from tformer_cli.recipe import Recipe, load_recipe, recipe_names
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.corpora import SentencePair, read_corpus, text_files
from tformer_cli.text.fields import with_label_fields, with_text_field
from tformer_cli.text.languages import FUNCTION_WORDS, SCRIPTS, main_code
from tformer_cli.text.lines import JSONL, TSV, ending_of, read_lines

# Tables that are read as Hugging Face datasets; what is kept of them is written as JSONL.
DATASET_ENDINGS = (".csv", ".parquet", ".arrow")
TABLES = (*TSV, *JSONL, *DATASET_ENDINGS)
WHAT_TO_GIVE = "name SOURCE and TARGET, whose lines correspond, or one file"
KINDS: Mapping[str, CorpusKind] = MappingProxyType(
    {"translate": PAIRS, "classify": LABELED, "language-model": TEXTS, "masked": TEXTS}
)
"""Kinds of corpora by the task of a recipe."""


@dataclass(frozen=True, kw_only=True)
class GivenData(Corpora):
    """Corpora to examine, and how they were named."""

    data: DataConfig
    is_recipe: bool = False

    def path_of(self, file: str) -> str:
        return f"{self.directory}/{file}" if self.directory else file

    def unjudged_sides(self) -> dict[str, str]:
        """The sides whose language no common words tell, each with its code, if it is known."""
        if self.detector is not None:
            return {}
        return {
            self.kind.sides[place]: self.languages[place]
            for place in self.kind.texts
            if main_code(self.languages[place]) not in FUNCTION_WORDS
        }

    def possible(self, wanted: frozenset[str]) -> frozenset[str]:
        """Returns the checks of those wanted that can be made of this kind."""
        known = checks_for(self.kind)
        if other := sorted(asked_checks(self.settings) - known):
            raise UsageError(
                f"--only: {other[0]} is not a check of {self.kind.noun}s; checks of them are "
                + ", ".join(sorted(known))
            )
        return wanted & known


def given_data(
    files: Sequence[str],
    fields: Fields | None = None,
    checks: CheckSettings | None = None,
    *,
    near: bool = False,
) -> GivenData:
    fields, checks = fields or Fields(), checks or CheckSettings()
    # read later: wrong arguments are reported first
    texts = chain.from_iterable(_texts_of_file(file, fields) for file in checks.held_out)
    is_recipe = _is_recipe(files)
    if is_recipe:
        if fields.names_fields:
            raise UsageError(f"{fields.names_fields}: are for a file; the recipe has its own")
        kind, data = _data_of(load_recipe(files[0]), files[0])
        # what validates a training must not be trained on
        of_valid = (_texts(read_corpus(corpus, data.directory), kind) for corpus in data.valid)
        texts = chain(texts, chain.from_iterable(of_valid))
    else:
        corpus, kind = corpus_of(files, fields)
        source, target = languages_of(corpus, fields)
        data = DataConfig(train=(corpus,), source_language=source, target_language=target)
    languages = data.source_language, data.target_language
    if kind is not PAIRS:  # the only language is that of the texts
        languages = ("", languages[0]) if kind is TEXTS else (languages[0], "")
    held_out = HeldOut(texts, near=near)
    detector = Detector() if checks.detect_languages else None
    if detector is not None:
        for language in filter(None, languages):
            detector.check_known(language)
    if checks.scores and (kind is not PAIRS or is_recipe):
        raise UsageError("--scores: needs the files of one parallel corpus, not a recipe")
    return GivenData(
        data=data,
        is_recipe=is_recipe,
        configs=data.train,
        directory=data.directory,
        languages=languages,
        kind=kind,
        held_out=held_out,
        settings=checks,
        detector=detector,
        scores=ModelScores(checks.scores, checks.worst_share) if checks.scores else None,
    )


def _data_of(recipe: Recipe, name: str) -> tuple[CorpusKind, DataConfig]:
    """The data of a recipe, each corpus with its fields, and the kind of its examples."""
    kind, data = KINDS.get(recipe.task.kind), recipe.data
    if kind is None:
        raise UsageError(
            f'{name}: task.kind is "{recipe.task.kind}", whose data are not checked, only those of '
            + ", ".join(KINDS)
        )
    if kind is TEXTS and data.text == "stream":
        raise UsageError(
            f'{name}: data.text is "stream", a text whose lines are no examples; name a file, '
            "whose lines are then checked"
        )
    if kind is PAIRS:
        return kind, data
    complete = with_label_fields if kind is LABELED else with_text_field
    train, valid = (tuple(map(complete, corpora)) for corpora in (data.train, data.valid))
    return kind, replace(data, train=train, valid=valid)


def _texts(pairs: Iterable[SentencePair], kind: CorpusKind) -> Iterator[str]:
    return (text for pair in pairs for _, text in kind.texts_of(pair))


def corpus_of(files: Sequence[str], fields: Fields) -> tuple[CorpusConfig, CorpusKind]:
    """Returns the corpus in two aligned files, one table or one file of texts, and its kind."""
    ending = ending_of(files[0]) if len(files) == 1 else ""
    is_dataset = ending in DATASET_ENDINGS or (len(files) == 1 and Path(files[0]).is_dir())
    if ending == ".xlsx":
        raise UsageError(f"{files[0]}: is a spreadsheet; save it as .csv")
    if ending not in TABLES and not is_dataset:
        if len(files) > 2:
            raise UsageError(f"FILE…: found {len(files)} files; {WHAT_TO_GIVE}")
        if fields.names_fields:
            raise UsageError(f"{fields.names_fields}: files of text have no fields")
        if len(files) == 1:
            return CorpusConfig(text=files[0]), TEXTS
        return CorpusConfig(source=files[0], target=files[1]), PAIRS
    if (fields.text_field or fields.label_field) and (fields.source_field or fields.target_field):
        raise UsageError(
            "--text-field, --label-field: only for texts without a source; omit --source-field and "
            "--target-field"
        )
    # TSV numbers its columns, so only fields of JSON have a usual name
    if is_dataset:
        table = CorpusConfig(dataset=files[0])
    else:
        table = CorpusConfig(tsv=files[0]) if ending in TSV else CorpusConfig(jsonl=files[0])
    if fields.label_field:
        text = fields.text_field or ("" if ending in TSV else "text")
        return replace(table, source_field=text, target_field=fields.label_field), LABELED
    if fields.text_field:
        return replace(table, text_field=fields.text_field), TEXTS
    source, target = fields.source_field, fields.target_field
    return replace(table, source_field=source, target_field=target), PAIRS


def files_of(corpus: CorpusConfig, directory: str = "") -> list[str]:
    """Names of the files that a corpus can be named by; none of datasets on the hub."""
    # `tformer data` has no option for other splits, so a command that names one cannot be written
    is_whole = corpus.split == "train" and not corpus.dataset_config
    if corpus.dataset and is_whole and Path(directory, corpus.dataset).exists():
        return [corpus.dataset]
    return text_files(corpus)


def options_of_fields(corpus: CorpusConfig, kind: CorpusKind) -> list[tuple[str, str]]:
    """The options that give the fields of a table, each with its value; empty: not needed."""
    if corpus.text or corpus.source:
        return []
    if kind is TEXTS:
        return [("--text-field", corpus.text_field)]
    if kind is PAIRS:
        return [("--source-field", corpus.source_field), ("--target-field", corpus.target_field)]
    return [("--text-field", corpus.source_field), ("--label-field", corpus.target_field or "2")]


def languages_of(corpus: CorpusConfig, fields: Fields) -> tuple[str, str]:
    """The codes of the languages: those given, else the endings of aligned files."""
    codes = []
    for code, file in (
        (fields.source_language, corpus.source or corpus.text),
        (fields.target_language, corpus.target),
    ):
        ending = ending_of(file).removeprefix(".") if file else ""
        # other endings (.txt, .src) say nothing of a language
        is_code = main_code(ending) in FUNCTION_WORDS.keys() | SCRIPTS.keys()
        codes.append(code or (ending if is_code else ""))
    return codes[0], codes[1]


def _is_recipe(files: Sequence[str]) -> bool:
    return len(files) == 1 and (ending_of(files[0]) == ".toml" or files[0] in recipe_names())


def _texts_of_file(file: str, fields: Fields) -> Iterator[str]:
    if ending_of(file) in TABLES:
        corpus, kind = corpus_of([file], fields)
        return _texts(read_corpus(corpus), kind)
    return read_lines(file)
