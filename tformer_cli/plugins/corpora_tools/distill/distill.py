"""Distillation: the stages from teachers' translations to a report, each when it is needed."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tformer_cli.artifacts.config_file import CONFIG, SHORTLIST, TOKENIZER, WEIGHTS
from tformer_cli.artifacts.job_file import JOB, Job, record_job
from tformer_cli.artifacts.model_directory import store_decoding
from tformer_cli.artifacts.shortlist_file import save_shortlist
from tformer_cli.errors import TformerError
from tformer_cli.files.atomic import lock_directory, make_directory, not_writable, remove_tree
from tformer_cli.files.regular_file import hash_file
from tformer_cli.inspect.jobs.align import Aligner, AlignmentReport, PairTexts
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.plugins.corpora_tools.distill.recording import RecordingDisplay
from tformer_cli.plugins.corpora_tools.distill.report import (
    DistillationReport,
    check_test_sets,
    read_report,
    report_stage,
)
from tformer_cli.plugins.corpora_tools.distill.setup import (
    CORPORA,
    INT8,
    PLACES,
    PLAIN,
    REPORT,
    STUDENT,
    Setup,
    check,
    hash_of,
)
from tformer_cli.plugins.corpora_tools.distill.stages import (
    MANIFEST,
    Manifest,
    Stage,
    State,
    states,
)
from tformer_cli.plugins.corpora_tools.distill.translations import (
    check_translations,
    selection_stage,
    student_recipe,
    translation_stages,
)
from tformer_cli.plugins.corpora_tools.shortlist import N_FREQUENT, lexicon_of, linked_by_model
from tformer_cli.recipe import DECIDE_NOTHING, Recipe, load_recipe
from tformer_cli.runtime import Stopwatch
from tformer_cli.sockets import load_place
from tformer_cli.text.corpora import read_corpus
from tformer_cli.trainer.distillation import DistillationConfig

# Target tokens of each source token in the shortlist, as `tformer shortlist` keeps by default.
N_BEST_TOKENS = 100

# Settings that rank the texts of a beam; greedy search has only one.
RANKING = ("decoding.length_penalty", "decoding.length_normalization", "decoding.coverage_penalty")


def plain_recipe(setup: Setup) -> Recipe:
    return replace(setup.recipe, distillation=DistillationConfig())


def student_stages(setup: Setup) -> list[Stage]:
    config = setup.config
    stages = [
        _training_stage(setup, STUDENT, student_recipe(setup), ("select",), "from translations")
    ]
    if config.plain_student:
        stages.append(_training_stage(setup, PLAIN, plain_recipe(setup), (), "without a teacher"))
    # before the integers: an export takes the student's shortlist with it
    if config.shortlist:
        stages.append(
            Stage(
                name="shortlist",
                what="of the student's attention",
                place=f"{STUDENT}/{SHORTLIST}",
                files=(f"{STUDENT}/{SHORTLIST}",),
                inputs=partial(_shortlist_inputs, setup),
                run=partial(_make_shortlist, setup),
                needs=(STUDENT,),
                keeps_earlier=False,
            )
        )
    if config.int8:
        stages.append(
            Stage(
                name=INT8,
                what="the student with integers as weights",
                place=INT8,
                files=tuple(f"{INT8}/{name}" for name in (CONFIG, TOKENIZER, WEIGHTS)),
                inputs=partial(_int8_inputs, setup),
                run=partial(_export, setup),
                needs=(STUDENT, *(["shortlist"] if config.shortlist else [])),
                keeps_earlier=False,
            )
        )
    return stages


def _training_stage(
    setup: Setup, name: str, recipe: Recipe, needs: tuple[str, ...], what: str
) -> Stage:
    return Stage(
        name=name,
        what=f"training, {what}",
        place=name,
        files=tuple(f"{name}/{file}" for file in (CONFIG, TOKENIZER, WEIGHTS)),
        inputs=partial(_training_inputs, setup, recipe),
        run=partial(_train, setup, recipe, setup.directory / name),
        # decoding settings change no weight: they are stored without another training
        settle=lambda: store_decoding(setup.directory / name, recipe.decoding),
        needs=needs,
        is_whole=False,
    )


def _training_inputs(setup: Setup, recipe: Recipe) -> dict[str, str]:
    """Inputs that decide a training: corpora by their content, wherever they lie."""
    # Validation has its own beam size, so that most decoding settings change no weight.
    values = recipe.to_mapping()
    corpora = [
        {**values["data"][key][number], "content": setup.content(corpus)}
        for key, listed in (("train", recipe.data.train), ("valid", recipe.data.valid))
        for number, corpus in enumerate(listed)
    ]
    for corpus in corpora:
        # a corpus that was moved is the same corpus: its content is hashed instead
        for name in ("source", "target", "tsv", "jsonl", "dataset"):
            del corpus[name]
    values["data"] |= {"train": [], "valid": [], "directory": ""}
    tokenizer = recipe.tokenizer.path
    if tokenizer and not recipe.start.model:
        path = Path(recipe.data.directory) / tokenizer
        values["tokenizer"]["path"] = hash_file(path / TOKENIZER if path.is_dir() else path)
    # what ranks a beam chooses the best checkpoint where validation has one
    ranking = RANKING if recipe.validation.beam_size == 1 else ()
    for key in (*DECIDE_NOTHING, "decoding.beam_size", "decoding.n_best", *ranking):
        table, _, name = key.partition(".")
        del values[table][name]
    return {"corpora": hash_of(corpora), "recipe": hash_of(values)}


def _train(setup: Setup, recipe: Recipe, run: Path) -> None:
    from tformer_cli.recipe import RECIPE
    from tformer_cli.train.train import train

    setup.prepare_torch()
    if (run / RECIPE).is_file():  # a resumed run keeps its decoding settings
        recipe = replace(recipe, decoding=load_recipe(str(run / RECIPE)).decoding)
    with setup.display.training(recipe) as (observers, progress):
        train(recipe, run, device=setup.device, observers=observers, progress=progress)


def _shortlist_inputs(setup: Setup) -> Mapping[str, str]:
    student, recipe = setup.directory / STUDENT, student_recipe(setup)
    return {
        "student": hash_of([hash_file(student / name) for name in (TOKENIZER, WEIGHTS)]),
        "pairs": hash_of([setup.content(corpus) for corpus in recipe.data.train]),
    }


def _make_shortlist(setup: Setup) -> None:
    """Links the tokens of all pairs that the student has learned, by its own attention."""
    student, data = setup.directory / STUDENT, student_recipe(setup).data
    options = setup.student_options(student)
    # attention of the exact weights, and not through a shortlist of an earlier student
    options["precision"], options["shortlist"] = "float32", "none"
    opened = open_model(student, **options)
    aligner, lexicon = Aligner(opened.directory), lexicon_of(opened.directory.tokenizer)
    report = AlignmentReport()
    pairs = (pair for corpus in data.train for pair in read_corpus(corpus, data.directory))
    texts = (PairTexts(number, *pair) for number, pair in enumerate(pairs))
    with setup.display.lines("aligning", None) as progress:
        for linked in linked_by_model(aligner, texts, report):
            lexicon.add(*linked)
            progress(report.lines)
    # an empty shortlist would leave the student without a word
    if not lexicon.n_linked:
        raise TformerError(f"{setup.directory / CORPORA}: has no pair to align for a shortlist")
    is_joint = opened.directory.tokenizer.is_joint
    save_shortlist(
        student / SHORTLIST, lexicon.shortlist(N_FREQUENT, N_BEST_TOKENS, is_joint=is_joint)
    )


def _int8_inputs(setup: Setup) -> Mapping[str, str]:
    student = setup.directory / STUDENT
    files = [student / name for name in (TOKENIZER, WEIGHTS, SHORTLIST)]
    return {
        "student": hash_of([hash_file(file) for file in files if file.is_file()]),
        "decoding": hash_of(asdict(setup.recipe.decoding)),
    }


EXPORT_INT8 = "tformer_cli.plugins.interchange.export:export_int8"


def _export(setup: Setup) -> None:
    setup.prepare_torch()
    load_place(EXPORT_INT8)(setup.directory / STUDENT, setup.directory / INT8)


def stages_of(setup: Setup) -> list[Stage]:
    before = [*translation_stages(setup), selection_stage(setup), *student_stages(setup)]
    return [*before, report_stage(setup, [stage.name for stage in before])]


def plan_distillation(setup: Setup) -> tuple[list[tuple[Stage, State]], int]:
    check(setup)
    check_test_sets(setup)
    check_translations(setup)
    manifest = Manifest.read(setup.directory)
    recipe = student_recipe(setup)
    n_parameters = parameter_count(recipe.model, recipe.tokenizer.vocab_size)
    return states(manifest, stages_of(setup)), n_parameters


def distill(setup: Setup, *, fresh: bool = False) -> DistillationReport:
    """Trains a student on a teacher's translations, and reports on both."""
    # Stages whose inputs have not changed are skipped, one that was interrupted is resumed. The
    # translations, students and reports of other inputs are kept in `earlier`.
    check(setup)
    check_test_sets(setup)
    directory, stages = setup.directory, stages_of(setup)
    make_directory(directory)
    with lock_directory(directory):
        if fresh:
            _clear(directory)
        manifest = Manifest.read(directory)
        manifest.write()
        job = Job(directory, "distill", "stages", total=len(stages))
        display = RecordingDisplay(setup.display, job, setup.watch)
        setup = replace(setup, display=display)
        if not setup.config.shortlist and "shortlist" in manifest.stages:
            del manifest.stages["shortlist"]  # else the student would translate with it
            (directory / STUDENT / SHORTLIST).unlink(missing_ok=True)
            manifest.write()
        with record_job(job):
            for number, stage in enumerate(stages_of(setup)):
                job.report(number, stage.name)
                manifest.bring_up_to_date(
                    replace(stage, run=partial(_run_stage, setup.watch, stage)), display.stage
                )
                setup.watch.lap("checking")
                display.record()
            job.report(len(stages))
        display.times(job.list_times())
        return read_report(directory)


def _run_stage(watch: Stopwatch, stage: Stage) -> None:
    watch.lap("checking")
    stage.run()
    watch.lap(_PARTS.get(stage.name, "writing"))


# What most of a stage's time goes into; translation counts its own parts.
_PARTS = {
    "select": "selecting",
    **dict.fromkeys((STUDENT, PLAIN), "training"),
    "shortlist": "aligning",
    INT8: "converting",
    REPORT: "measuring",
}


def has_distillation(directory: Path) -> bool:
    return (directory / MANIFEST).exists()


def _clear(directory: Path) -> None:
    """Removes the outputs of the stages; those from other inputs stay in `earlier`."""
    if not has_distillation(directory):
        return
    try:
        for name in PLACES:
            remove_tree(directory / name)
        (directory / JOB).unlink(missing_ok=True)
        (directory / MANIFEST).unlink()
    except OSError as error:
        raise not_writable(directory, error) from None
