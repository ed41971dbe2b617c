"""`tformer data`: check, clean, split and deduplicate corpora."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tformer_cli.cli.command import CommandGroup
from tformer_cli.cli.format_choice import chosen_format, format_option, write_result
from tformer_cli.cli.options import (
    REQUIRED,
    OutputOption,
    QuietOption,
    argument,
    option_field,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import note, results, warn, write_line
from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.quality.settings import NEAR, CheckSettings, Fields
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from tformer_cli.plugins.corpora_tools.quality.clean_data import CleanReport
    from tformer_cli.plugins.corpora_tools.quality.given import GivenData

data_app = CommandGroup(
    "data",
    help="Check, clean, split and deduplicate corpora.\n\nExamples:\n"
    "  tformer data check train.en train.de\n"
    "  tformer data clean train.en train.de -o cleaned",
)


FORMATS = ("text", "json", "html")


CORPUS = argument(
    "FILE…",
    "Two aligned files, one table (.tsv, .jsonl, .csv, .parquet, .arrow), or one file of "
    "texts; also .gz, .xz, .bz2 and .zst.",
    role="reads_file",
)
CHECKED = argument(
    "FILE…",
    "Two aligned files, one table (.tsv, .jsonl, .csv, .parquet, .arrow), one file of texts, "
    "or a recipe: all that it trains on.",
    role="reads_file",
)
DIRECTORY = option_field(
    REQUIRED,
    "Directory to write; an earlier result of this command is replaced.",
    "-o",
    role="writes_directory",
)


@data_app.add("check")
def check(
    files: list[str] = CHECKED,
    *,
    output: OutputOption = "-",
    format_: Annotated[
        str | None,
        format_option(FORMATS, "json", "A table with examples, one JSON object, or a page."),
    ] = None,
    examples: int = option_field(3, "Example pairs to show for each check.", min=0, max=1000),
    checks: CheckSettings,
    fields: Fields,
    quiet: QuietOption = False,
) -> None:
    """Report problems in a corpus, with examples and the commands that fix them.

    The checks: encoding damage, blank and identical sides, lengths, languages, swapped sides,
    numbers, addresses, markup, noise, repeats, and held-out sentences. Nothing is changed. A file
    of texts, with or without labels, gets the checks that need no second side.

    Examples:
        tformer data check train.en train.de
        tformer data check pairs.tsv --held-out test.en --held-out test.de -o report.json
        tformer data check my-recipe.toml --examples 20 -o report.html
        tformer data check reviews.tsv --label-field 2 --source-language en
    """
    from tformer_cli.plugins.corpora_tools.check_data import check_data, report_document
    from tformer_cli.plugins.corpora_tools.quality.checks import (
        DEFAULT,
        NEAR_DUPLICATE,
        chosen_checks,
    )

    names = chosen_checks(checks, DEFAULT)
    chosen = chosen_format(format_, output, FORMATS, "json")
    # First: an unwritable file is an error at once, not after the corpus is read
    with results(output) as stream:
        data = _open_data(files, fields, checks, near=NEAR_DUPLICATE in names, quiet=quiet)
        possible = data.possible(names)
        with line_progress(None, "checking", quiet=quiet) as progress:
            report = check_data(
                data,
                wanted=possible,
                n_examples=examples,
                options=[*checks.list_options(), *fields.languages()],
                progress=progress.update,
            )
        _note_unjudged(data, possible, quiet=quiet)
        write_result(stream, output, chosen, report.summary, partial(report_document, report), 2)


@data_app.add("clean")
def clean(
    files: list[str] = CORPUS,
    *,
    output: Path = DIRECTORY,
    checks: CheckSettings,
    fields: Fields,
    quiet: QuietOption = False,
) -> None:
    """Write a corpus without its doubtful pairs, and list the reasons for each.

    DIR gets the kept lines under their files' names, dropped.jsonl and report.json. Until it is
    complete it is named DIR.part; run the same command again to resume. Repeated sources and
    targets are kept unless --only names these checks.

    Examples:
        tformer data clean train.en train.de -o cleaned
        tformer data clean pairs.tsv --without numbers,copied -o cleaned
    """
    from tformer_cli.plugins.corpora_tools.quality.checks import DEFAULT, DROPPING, chosen_checks

    _clean(files, output, chosen_checks(checks, DEFAULT & DROPPING), checks, fields, quiet=quiet)


@data_app.add("dedupe")
def dedupe(
    files: list[str] = CORPUS,
    *,
    output: Path = DIRECTORY,
    by: Literal["pair", "source", "target", "either"] = option_field(
        "pair",
        "Keep only the first of the pairs that share this; for texts, only pair.",
    ),
    near: bool = option_field(False, NEAR),
    held_out: list[str] | None = option_field(
        None,
        "File of test or validation sentences; pairs that contain one are dropped, too.",
        shown="none",
        role="reads_file",
    ),
    fields: Fields,
    quiet: QuietOption = False,
) -> None:
    """Write a corpus without repeats, apart from case, punctuation and spaces.

    DIR gets the kept lines under their files' names, dropped.jsonl and report.json.

    Examples:
        tformer data dedupe train.en train.de -o unique
        tformer data dedupe pairs.jsonl --by source --held-out test.en -o unique
    """
    from tformer_cli.plugins.corpora_tools.quality.checks import (
        DUPLICATE,
        REPEATED_SOURCE,
        REPEATED_TARGET,
        chosen_checks,
    )

    dropping = {DUPLICATE}
    dropping |= {REPEATED_SOURCE} if by in ("source", "either") else set()
    dropping |= {REPEATED_TARGET} if by in ("target", "either") else set()
    checks = CheckSettings(held_out=tuple(held_out or ()), near=near)
    chosen = chosen_checks(checks, frozenset(dropping))
    _clean(files, output, chosen, checks, fields, quiet=quiet, by=by)


@data_app.add("split")
def split(
    files: list[str] = CORPUS,
    *,
    output: Path = DIRECTORY,
    valid: int = option_field(2000, "Pairs to hold out for validation.", min=0),
    test: int = option_field(2000, "Pairs to hold out for testing.", min=0),
    near: bool = option_field(
        False,
        "Also keep pairs with nearly the same source or target together, by MinHash; takes "
        "longer, and 0.8 KB of disk space each.",
    ),
    seed: int = option_field(1, "Random seed; another seed makes other sets.", min=0),
    fields: Fields,
    quiet: QuietOption = False,
) -> None:
    """Split a corpus into train, valid and test sets that share no source and no target.

    Pairs with the same source or target, apart from case, punctuation and spaces, stay together.
    DIR gets train, valid and test with the endings of the files, and report.json.

    Examples:
        tformer data split all.en all.de -o corpus --valid 1000 --test 1000
        tformer data split pairs.tsv -o corpus --near --seed 2
    """
    from tformer_cli.plugins.corpora_tools.quality.split_data import split_data

    data = _open_data(files, fields, quiet=quiet)
    with line_progress(None, "splitting", quiet=quiet) as progress:
        report = split_data(
            data,
            output,
            n_valid=valid,
            n_test=test,
            near=near,
            seed=seed,
            progress=progress.update,
        )
    _warn_of_bytes(report.not_utf8)
    note(
        ", ".join(f"{n:,} {name}" for name, n in report.pairs.items()) + f" {data.kind.noun}s",
        quiet=quiet,
    )
    write_line(str(output))


def _open_data(
    files: Sequence[str],
    fields: Fields,
    checks: CheckSettings | None = None,
    *,
    near: bool = False,
    quiet: bool,
) -> "GivenData":
    """Returns the corpora that files or a recipe name; notes which columns are read."""
    from tformer_cli.plugins.corpora_tools.quality.facts import PAIRS
    from tformer_cli.plugins.corpora_tools.quality.given import given_data

    data = given_data(files, fields, checks, near=near)
    # A table does not say which column is the source: a wrong guess must be seen
    is_table = not data.is_recipe and data.kind is PAIRS and data.data.train[0].tsv
    if is_table and not fields.names_fields:
        note(
            f"{files[0]}: column 1 is the source and column 2 the target; name others with "
            "--source-field and --target-field, or --text-field and --label-field for labeled "
            "texts",
            quiet=quiet,
        )
    return data


def _clean(
    files: Sequence[str],
    output: Path,
    dropping: frozenset[str],
    checks: CheckSettings,
    fields: Fields,
    *,
    quiet: bool,
    by: str = "pair",
) -> None:
    """Writes the kept pairs, and says on stderr how many each check dropped."""
    from tformer_cli.plugins.corpora_tools.quality.checks import NEAR_DUPLICATE
    from tformer_cli.plugins.corpora_tools.quality.clean_data import clean_data

    near = NEAR_DUPLICATE in dropping
    data = _open_data(files, fields, checks, near=near, quiet=quiet)
    if by != "pair" and len(data.kind.texts) == 1:
        raise UsageError(
            f"--by {by}: only for pairs, but these are {data.kind.noun}s; to drop repeats with "
            "another label, use `tformer data clean --only other-label`"
        )
    dropping = data.possible(dropping)
    with line_progress(None, "cleaning", quiet=quiet) as progress:
        report = clean_data(
            data,
            output,
            dropping=dropping,
            progress=progress.update,
            on_resume=lambda n: note(f"{n:,} {data.kind.noun}s done; resuming", quiet=quiet),
        )
    _note_unjudged(data, dropping, quiet=quiet)
    _warn_of_bytes(report.not_utf8)
    _note_dropped(report, data.kind.noun, quiet=quiet)
    write_line(str(output))


def _note_unjudged(data: "GivenData", checks: frozenset[str], *, quiet: bool) -> None:
    """Notes which sides' languages are not checked, and which score files have only numbers."""
    sides = data.unjudged_sides() if "language" in checks else {}
    options = {"target": "--target-language"}
    if unknown := [side for side, code in sides.items() if not code]:
        what = " and ".join(options.get(side, "--source-language") for side in unknown)
        note(f"language: not checked for the {' and '.join(unknown)}; give {what}", quiet=quiet)
    for side, code in sides.items():
        if code:
            what = f'language: not checked for the {side}: no common words known for "{code}"'
            note(f"{what}; add --detect-languages", quiet=quiet)
    for file in data.scores.bare if data.scores is not None else ():
        warn(
            f"{file}: has only numbers, read as mean log-probabilities per token; `tformer score` "
            "writes sums unless --format is jsonl"
        )


def _warn_of_bytes(n_lines: int) -> None:
    if n_lines:
        lines = count_of(n_lines, "line")
        warn(f"{lines} with bytes that are not UTF-8; U+FFFD was written for them")


def _note_dropped(report: "CleanReport", noun: str, *, quiet: bool) -> None:
    checks = {name: n for name, n in report.checks.items() if n}
    for name, n_pairs in checks.items():
        note(f"{name}: {count_of(n_pairs, noun)}", quiet=quiet)
    note(
        f"kept {report.kept:,} of {count_of(report.pairs, noun)}; dropped.jsonl lists the reasons "
        "for the others",
        quiet=quiet,
    )
    # A warning, as --quiet must not hide that nothing is left
    if report.pairs and not report.kept:
        warn(f"no {noun} was kept; see dropped.jsonl, and omit checks with --without")
