"""Translations by teachers, resumable line by line, and translations made elsewhere."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from tformer_cli.artifacts.resumable import resumable_file
from tformer_cli.distill.setup import TRANSLATIONS, Setup, hash_of, model_hash
from tformer_cli.distill.stages import Stage
from tformer_cli.errors import DataError
from tformer_cli.files.atomic import make_directory
from tformer_cli.files.regular_file import hash_file
from tformer_cli.kinds.lines.translate import TranslationCounts, translated_text
from tformer_cli.kinds.opening.translator import open_translator
from tformer_cli.quality.given import ending_of
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import read_lines, without_surrogates
from tformer_cli.wording import count_of


@dataclass(frozen=True, kw_only=True)
class Text:
    """Lines that a model translates."""

    name: str
    """Name: that of the recipe's key, and a number."""
    lines: Callable[[], Iterator[str]]
    content: Callable[[], str]
    is_reverse: bool = False
    n_best: int = 1

    @property
    def place(self) -> str:
        return f"{TRANSLATIONS}/{self.name}.jsonl"


def texts_of(setup: Setup) -> list[Text]:
    config, data = setup.config, setup.recipe.data
    found = []
    if config.teachers and config.distilled_weight:
        found = [
            Text(
                name=f"train-{number}",
                lines=partial(_sources, corpus, data.directory),
                content=partial(setup.content, corpus),
                n_best=config.teacher_n_best,
            )
            for number, corpus in enumerate(data.train)
        ]
    for key, files, weight in (
        ("monolingual", config.monolingual, config.monolingual_weight),
        ("back_translation", config.back_translation, config.back_translation_weight),
    ):
        found += [
            Text(
                name=f"{key}-{number}",
                lines=partial(read_lines, setup.file(file)),
                content=partial(hash_file, setup.file(file)),
                is_reverse=key == "back_translation",
            )
            for number, file in enumerate(files)
            if weight
        ]
    return found


def _sources(corpus: CorpusConfig, directory: str) -> Iterator[str]:
    return (pair.source for pair in read_corpus(corpus, directory))


def translation_stages(setup: Setup) -> list[Stage]:
    return [
        Stage(
            name=f"translate {text.name}",
            what=_description(setup, text),
            place=text.place,
            files=(text.place,),
            inputs=partial(_inputs, setup, text),
            run=partial(_translate, setup, text),
        )
        for text in texts_of(setup)
    ]


def _models(setup: Setup, text: Text) -> tuple[Path, ...]:
    return setup.reverse_models if text.is_reverse else setup.teachers


def _description(setup: Setup, text: Text) -> str:
    config = setup.config
    names = [config.reverse_model] if text.is_reverse else config.teachers
    best = f", {text.n_best} best" if text.n_best > 1 else ""
    return f"by {' and '.join(names)}, beam {config.teacher_beam_size}{best}"


def _inputs(setup: Setup, text: Text) -> dict[str, str]:
    config, models = setup.config, _models(setup, text)
    options = setup.options(models, is_reverse=text.is_reverse)
    settings = [
        config.teacher_beam_size,
        text.n_best,
        config.teacher_precision,
        options.get("source_language"),
        options.get("target_language"),
    ]
    return {
        "text": text.content(),
        **{f"model {number}": model_hash(model) for number, model in enumerate(models)},
        "settings": json.dumps(settings),
    }


def _translate(setup: Setup, text: Text) -> None:
    """Translates a text into JSONL, behind what an earlier run has written of it."""
    output = setup.directory / text.place
    models = _models(setup, text)
    make_directory(output.parent)
    origin = {"inputs": hash_of(_inputs(setup, text))}
    options = setup.options(models, is_reverse=text.is_reverse)
    options["beam_size"], options["n_best"] = setup.config.teacher_beam_size, text.n_best
    options["tell"] = setup.display.say
    opened = open_translator(models[0], **options)
    total = sum(1 for _ in text.lines())
    counts = TranslationCounts()
    with (
        resumable_file(output, origin) as file,
        setup.display.lines(f"translating {text.name}", total) as progress,
    ):
        n_before = file.done
        buffers = translated_text(
            opened.translator,
            islice(text.lines(), n_before, None),
            counts=counts,
            output_format="jsonl",
            lists_hypotheses=True,
            first_index=n_before,
        )
        for lines in buffers:
            file.stream.writelines(f"{without_surrogates(line)}\n".encode() for line in lines)
            file.mark(n_before + counts.lines)
            progress(file.done)
    if counts.split:
        setup.display.say(
            f"{text.name}: {count_of(counts.split, 'line')} longer than the teacher takes; "
            "translated in parts"
        )


def read_translations(path: Path) -> Iterator[tuple[str | None, list[str]]]:
    """Reads translations, those of each line the best first."""
    # Returns the source sentence, if the file has it, and its translations.
    if ending_of(str(path)) not in (".jsonl", ".json", ".ndjson"):
        yield from ((None, [line]) for line in read_lines(path))
        return
    for number, line in enumerate(read_lines(path), 1):
        try:
            record = json.loads(line)
            listed = record.get("hypotheses") or [record]
            found = [_text(one["translation"]) for one in listed]
            source = record.get("source")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise DataError(
                f'{path}, line {number}: has no "translation" or "hypotheses"; write what '
                "`tformer translate --format jsonl` writes"
            ) from None
        yield (None if source is None else str(source)), found


def check_same_source(path: Path, number: int, expected: str, found: str | None) -> None:
    """Checks that a translation is of the source that it stands beside."""
    if found is not None and without_surrogates(found) != without_surrogates(expected):
        raise DataError(
            f"{path}, line {number}: translates another sentence than line {number} of the corpus; "
            "translate the corpus again"
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return without_surrogates(value)
