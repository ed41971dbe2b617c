"""Corpora that the student reads: one translation of each sentence, by teachers or given."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

from tformer_cli.artifacts.config_file import TOKENIZER
from tformer_cli.artifacts.resumable import resumable_file
from tformer_cli.errors import DataError, RecipeError
from tformer_cli.files.atomic import directory_aside, make_directory
from tformer_cli.files.regular_file import hash_file
from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.kinds.lines.translate import translated_text
from tformer_cli.kinds.opening import open_model
from tformer_cli.metrics.scores import sentence_score
from tformer_cli.plugins.corpora_tools.distill.setup import (
    CORPORA,
    TRANSLATIONS,
    Setup,
    hash_of,
    model_hash,
)
from tformer_cli.plugins.corpora_tools.distill.stages import Stage
from tformer_cli.recipe import Recipe
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import ending_of, read_lines, without_surrogates
from tformer_cli.text.tokenizer import Tokenizer
from tformer_cli.train.data import make_tokenizer
from tformer_cli.trainer.distillation import DistillationConfig
from tformer_cli.wording import count_of, is_blank

COUNTS = "selection.json"


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
    texts = []
    # with a weight of 0 hours of translating would teach the student nothing
    if config.teachers and config.distilled_weight:
        texts = [
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
        texts += [
            Text(
                name=f"{key}-{number}",
                lines=partial(read_lines, setup.file(file)),
                content=partial(hash_file, setup.file(file)),
                is_reverse=key == "back_translation",
            )
            for number, file in enumerate(files)
            if weight
        ]
    return texts


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
    """Translates a text into JSONL, after the lines that an earlier run has written."""
    output = setup.directory / text.place
    models = _models(setup, text)
    make_directory(output.parent)
    origin = {"inputs": hash_of(_inputs(setup, text))}
    options = setup.options(models, is_reverse=text.is_reverse)
    options["beam_size"], options["n_best"] = setup.config.teacher_beam_size, text.n_best
    options["tell"] = setup.display.say
    opened = open_model(models[0], **options)
    setup.watch.lap("opening")
    # once more through the text, for a bar of hours of work
    total = sum(1 for _ in text.lines())
    counts = ResultCounts()
    with (
        resumable_file(output, origin) as file,
        setup.display.lines(f"translating {text.name}", total) as progress,
    ):
        n_before = file.done
        buffers = translated_text(
            opened.translator.timed_by(setup.watch),
            # what an earlier run has translated is not translated again
            islice(text.lines(), n_before, None),
            counts=counts,
            output_format="jsonl",
            lists_hypotheses=True,
            first_index=n_before,
        )
        for lines in buffers:
            file.stream.writelines(f"{without_surrogates(line)}\n".encode() for line in lines)
            file.mark(n_before + counts.lines)
            setup.watch.lap("writing")
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
            # without --n-best a line has one translation and no list
            hypotheses = record.get("hypotheses") or [record]
            texts = [_text(hypothesis["translation"]) for hypothesis in hypotheses]
            source = record.get("source")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise DataError(
                f'{path}, line {number}: has no "translation" or "hypotheses"; write what '
                "`tformer translate --format jsonl` writes"
            ) from None
        yield (None if source is None else str(source)), texts


def check_same_source(path: Path, number: int, expected: str, source: str | None) -> None:
    """Checks that a translation belongs to the source of its line."""
    if source is not None and without_surrogates(source) != without_surrogates(expected):
        raise DataError(
            f"{path}, line {number}: translates another sentence than line {number} of the corpus; "
            "translate the corpus again"
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return without_surrogates(value)


SentenceScore = Callable[[str, str], float]


def choose_translation(
    translations: Sequence[str], reference: str, score: SentenceScore | None
) -> int:
    """Returns the place of the translation to learn; of equal ones that of the first.

    score: of a translation by its reference; None: the teacher's own order counts.
    """
    # monolingual text has no reference: the teacher decides
    if score is None or is_blank(reference):
        return 0
    # an n-best list often has a text twice
    scores = {text: score(text, reference) for text in dict.fromkeys(translations)}
    return max(range(len(translations)), key=lambda place: (scores[translations[place]], -place))


def selection_stage(setup: Setup) -> Stage:
    """Makes the stage that writes the student's corpora, and its tokenizer if that has a tag."""
    names = [f"{CORPORA}/{name}.jsonl" for name, _ in _outputs(setup)]
    tokenizer = [f"{CORPORA}/{TOKENIZER}"] if _makes_tokenizer(setup) else []
    return Stage(
        name="select",
        what=f"the best by {setup.config.choice}"
        if setup.config.choice != "first"
        else "the first translation",
        place=CORPORA,
        files=(*names, *tokenizer, f"{CORPORA}/{COUNTS}"),
        inputs=partial(_selection_inputs, setup),
        run=partial(_select, setup),
        needs=tuple(stage.name for stage in translation_stages(setup)),
        keeps_earlier=False,
    )


def student_recipe(setup: Setup) -> Recipe:
    recipe, config = setup.recipe, setup.config
    try:
        corpora = [
            replace(corpus, weight=corpus.weight * config.original_weight)
            for corpus in recipe.data.train
            if config.original_weight
        ]
        corpora += [
            CorpusConfig(jsonl=str(setup.place / CORPORA / f"{name}.jsonl"), weight=weight)
            for name, weight in _outputs(setup)
        ]
    except ValueError as error:
        raise RecipeError(f"distillation: {error}") from None
    tokenizer, model = recipe.tokenizer, recipe.model
    if _makes_tokenizer(setup):
        tokenizer = replace(tokenizer, path=str(setup.place / CORPORA / TOKENIZER))
    # the training extends the vocabulary of the model that it starts from
    elif _tag(config) and _tag(config) not in tokenizer.new_tokens:
        tokenizer = replace(tokenizer, new_tokens=(*tokenizer.new_tokens, _tag(config)))
        if model.source_vocab_size:
            model = replace(model, source_vocab_size=model.source_vocab_size + 1)
    return replace(
        recipe,
        model=model,
        data=replace(recipe.data, train=tuple(corpora)),
        tokenizer=tokenizer,
        distillation=DistillationConfig(),
    )


def _outputs(setup: Setup) -> Iterator[tuple[str, float]]:
    config = setup.config
    if config.teachers or config.translations:
        for number, corpus in enumerate(setup.recipe.data.train):
            if config.distilled_weight:
                yield f"train-{number}", corpus.weight * config.distilled_weight
    for key in ("monolingual", "back_translation"):
        weight = getattr(config, f"{key}_weight")
        if weight:
            yield from ((f"{key}-{n}", weight) for n in range(len(getattr(config, key))))


def _tag(config: DistillationConfig) -> str:
    has_any = bool(config.back_translation) and config.back_translation_weight > 0
    return config.back_translation_tag if has_any else ""


def _makes_tokenizer(setup: Setup) -> bool:
    """True if the tag must be added to a tokenizer; that of a model is extended by the training."""
    return bool(_tag(setup.config)) and not setup.recipe.start.model


def _translation_files(setup: Setup) -> dict[str, Path]:
    config = setup.config
    files = {name: setup.directory / TRANSLATIONS / f"{name}.jsonl" for name, _ in _outputs(setup)}
    if config.distilled_weight:
        files |= {f"train-{n}": setup.file(file) for n, file in enumerate(config.translations)}
    return files


def _selection_inputs(setup: Setup) -> dict[str, str]:
    config = setup.config
    hashes = {f"translations {n}": hash_file(f) for n, f in _translation_files(setup).items()}
    for number, corpus in enumerate(setup.recipe.data.train):
        hashes[f"train {number}"] = setup.content(corpus)
    for number, file in enumerate(config.back_translation):
        hashes[f"back-translated {number}"] = hash_file(setup.file(file))
    settings: dict[str, Any] = {"choice": config.choice, "tag": _tag(config)}
    if _makes_tokenizer(setup):
        settings |= {"tokenizer": asdict(setup.recipe.tokenizer)}
        settings |= {"original": config.original_weight > 0}
    return {**hashes, "settings": json.dumps(settings, sort_keys=True)}


def check_translations(setup: Setup) -> None:
    """Checks that translations made elsewhere belong to the training data: reads all."""
    for number, file in enumerate(setup.config.translations):
        path = setup.file(file)
        for _ in _match_pairs(_pairs(setup, "train", number, path), path):
            pass


def _select(setup: Setup) -> None:
    counts: dict[str, dict[str, Any]] = {}
    choice = setup.config.choice
    score = None if choice == "first" else sentence_score(choice)
    files = _translation_files(setup)
    with directory_aside(setup.directory / CORPORA) as aside:
        for name, _ in _outputs(setup):
            with (
                (aside / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as out,
                setup.display.lines(f"selecting {name}", None) as progress,
            ):
                key, _, number = name.rpartition("-")
                if key == "back_translation":
                    targets = read_lines(setup.file(setup.config.back_translation[int(number)]))
                    counts[name] = _write_reverse(
                        out, targets, files[name], _tag(setup.config), progress
                    )
                    continue
                pairs = _pairs(setup, key, int(number), files[name])
                counts[name] = _write_chosen(out, pairs, files[name], score, progress)
        if _makes_tokenizer(setup):
            tokenizer = _tagged_tokenizer(setup, aside)
            (aside / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        text = json.dumps(counts, ensure_ascii=False, indent=1) + "\n"
        (aside / COUNTS).write_text(text, encoding="utf-8", newline="\n")


def _pairs(setup: Setup, key: str, number: int, file: Path) -> Iterator[tuple[str, str]]:
    """Sources with their references, which are blank where there are none."""
    if key == "train":
        yield from read_corpus(setup.recipe.data.train[number], setup.recipe.data.directory)
        return
    for source, _ in read_translations(file):
        yield source or "", ""


def _write_chosen(
    out: TextIO,
    pairs: Iterator[tuple[str, str]],
    file: Path,
    score: SentenceScore | None,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    ranks: list[int] = []
    for number, ((source, reference), texts) in enumerate(_match_pairs(pairs, file), 1):
        place = choose_translation(texts, reference, score)
        ranks += [0] * (place + 1 - len(ranks))
        ranks[place] += 1
        _write(out, source, texts[place])
        # a display line a pair would take longer than the pair
        if number % 100 == 0:
            progress(number)
    return {"pairs": sum(ranks), "ranks": ranks}


def _write_reverse(
    out: TextIO,
    targets: Iterator[str],
    file: Path,
    tag: str,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """Writes each target with its back-translation before it, which the tag begins."""
    n_pairs = 0
    pairs = ((target, "") for target in targets)
    for n_pairs, ((target, _), (source, *_)) in enumerate(_match_pairs(pairs, file), 1):
        # the student must know what a machine wrote (Caswell et al. 2019); a blank stays blank
        _write(out, f"{tag} {source}" if tag and not is_blank(source) else source, target)
        if n_pairs % 100 == 0:
            progress(n_pairs)
    return {"pairs": n_pairs}


def _write(out: TextIO, source: str, target: str) -> None:
    # JSONL, for a sentence of a JSONL file or a dataset may hold a line end
    pair: Mapping[str, str] = {"source": source, "target": target}
    out.write(without_surrogates(json.dumps(pair, ensure_ascii=False)) + "\n")


def _match_pairs(
    pairs: Iterator[tuple[str, str]], file: Path
) -> Iterator[tuple[tuple[str, str], list[str]]]:
    # zip would end silently where one of the two is short
    both = zip_longest(pairs, read_translations(file))
    for number, (pair, entry) in enumerate(both, 1):
        if pair is None or entry is None:
            counts = [number - 1, number + sum(1 for _ in both)]
            n_sentences, n_translations = counts if pair is None else reversed(counts)
            raise DataError(
                f"{file}: has {count_of(n_translations, 'translation')} for the "
                f"{n_sentences:,} sentences of its corpus; translate it again"
            )
        check_same_source(file, number, pair[0], entry[0])
        yield pair, entry[1]


def _tagged_tokenizer(setup: Setup, corpora: Path) -> Tokenizer:
    """The student's tokenizer with the tag, which its training would not have made one token."""
    recipe, config = student_recipe(setup), setup.config
    written = [
        CorpusConfig(jsonl=str(corpora / f"{name}.jsonl"))
        for name, _ in _outputs(setup)
        if not name.startswith("back_translation")
    ]
    originals = setup.recipe.data.train if config.original_weight or not written else ()
    data = replace(recipe.data, train=(*originals, *written))
    original = replace(recipe, data=data, tokenizer=setup.recipe.tokenizer)
    with setup.display.training(recipe) as (_, progress):
        tokenizer = make_tokenizer(original, progress)
    tag = _tag(config)
    if tag in tokenizer.new_tokens:
        return tokenizer
    try:
        return tokenizer.with_new_tokens([tag])
    except DataError as error:
        raise RecipeError(f"distillation.back_translation_tag: {error}") from None
