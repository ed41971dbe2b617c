"""Distillation: the stages from teachers' translations to a report, each when it is needed."""

from pathlib import Path

from tformer_cli.artifacts.shortlist_file import SHORTLIST
from tformer_cli.distill.report import (
    DistillationReport,
    check_test_sets,
    read_report,
    report_stage,
)
from tformer_cli.distill.selection import (
    check_translations,
    selection_stage,
    student_recipe,
)
from tformer_cli.distill.setup import PLACES, STUDENT, Setup, check
from tformer_cli.distill.stages import (
    MANIFEST,
    Manifest,
    Stage,
    State,
    states,
)
from tformer_cli.distill.students import student_stages
from tformer_cli.distill.translations import translation_stages
from tformer_cli.files.atomic import make_directory, not_writable, remove_tree
from tformer_cli.files.lock import locked
from tformer_cli.model.weight_shapes import parameter_count


def stages_of(setup: Setup) -> list[Stage]:
    before = [*translation_stages(setup), selection_stage(setup), *student_stages(setup)]
    return [*before, report_stage(setup, [stage.name for stage in before])]


def plan_distillation(setup: Setup) -> tuple[list[tuple[Stage, State]], int]:
    """Returns what a run would do for each stage, and the parameters of the student."""
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
    with locked(directory):
        if fresh:
            _clear(directory)
        manifest = Manifest.read(directory)
        manifest.write()
        if not setup.config.shortlist and "shortlist" in manifest.stages:
            del manifest.stages["shortlist"]  # else the student would translate with it
            (directory / STUDENT / SHORTLIST).unlink(missing_ok=True)
            manifest.write()
        for stage in stages:
            manifest.bring_up_to_date(stage, setup.display.stage)
        return read_report(directory)


def has_distillation(directory: Path) -> bool:
    return (directory / MANIFEST).exists()


def _clear(directory: Path) -> None:
    """Removes what the stages have made; what was made of other inputs stays in `earlier`."""
    if not has_distillation(directory):
        return
    try:
        for name in PLACES:
            remove_tree(directory / name)
        (directory / MANIFEST).unlink()
    except OSError as error:
        raise not_writable(directory, error) from None
