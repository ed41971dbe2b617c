"""`tformer calibrate`: how doubtful a model's translations are, from held-out text."""

import json
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tformer_cli.cli.format_choice import text_or_json
from tformer_cli.cli.options import (
    ModelArgument,
    QuietOption,
    TranslatorOptions,
    option_field,
    refuse,
    takes_decoding_options,
)
from tformer_cli.cli.progress import line_progress
from tformer_cli.cli.streams import (
    check_stdin_is_read_once,
    note,
    warn,
    warn_of_bytes,
    write_line,
)
from tformer_cli.errors import UsageError
from tformer_cli.text.lines import LineCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tformer_cli.plugins.instruments.jobs.calibrate import CalibrationReport
    from tformer_cli.search.keywords import SearchOverrides


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions:
    """Text that the model was not trained on, and what counts as wrong."""

    source: Path | None = option_field(
        None, "Held-out source text; - is stdin.", "-i", role="reads_file"
    )
    reference: Path | None = option_field(None, "Its reference translations.", role="reads_file")
    below: float = option_field(
        0.3,
        "A translation is wrong if its chrF with the reference is below this.",
        min=0.0,
        max=1.0,
    )
    broken: float = option_field(
        0.1,
        "Assumed share of future input that is like the lines broken on purpose: unseen words, "
        "wrong language, noise, shuffled words, a dropped sentence, a translation that is cut off "
        "or belongs to another line.",
        min=0.01,
        max=0.9,
    )
    output_format: str = text_or_json("A table, or one JSON object.")

    def files(self) -> tuple[Path, Path]:
        for name in ("source", "reference"):
            if getattr(self, name) is None:
                raise UsageError(f"--{name}: is missing; name a file of held-out text")
        return self.source or Path(), self.reference or Path()


@takes_decoding_options
def calibrate(
    model: ModelArgument,
    *,
    texts: HeldOutOptions,
    options: TranslatorOptions,
    quiet: QuietOption = False,
    **decoding: Unpack["SearchOverrides"],
) -> None:
    """Calibrate `translate --doubt` on held-out text.

    The model translates the text as it is, and again with some lines broken on purpose. A logistic
    regression learns the probability that a translation is wrong from its log-probabilities,
    lengths and words, and is stored in the model directory. The report compares it with the
    log-probability by itself, all by cross-validation. 1,000 lines take a minute or two. `train`
    does this at its end, by held-out pairs.

    Examples:
        tformer calibrate runs/quickstart -i corpus/valid.en --reference corpus/valid.fr
        tformer translate runs/quickstart -i a.en --format jsonl
    """
    refuse(
        {"adapter": options.adapter},
        "MODEL keeps the calibration, but not the adapter; calibrate the output of `tformer "
        "export --adapter`",
    )
    files, read = texts.files(), LineCounts()
    check_stdin_is_read_once(files)
    from tformer_cli.evaluate.evaluate import read_texts
    from tformer_cli.plugins.instruments.jobs import calibrate as workflow

    sources, references = read_texts(list(files), read)
    settings = workflow.CalibrationSettings(
        below=texts.below, broken=texts.broken, seed=options.seed
    )
    opened = options.open(model, quiet=quiet, n_best=1, **decoding)
    with line_progress(2 * len(sources), "calibrating", quiet=quiet) as progress:
        report = workflow.calibrate(opened, sources, references, settings, progress.update)
    warn_of_bytes(read)
    _tell_limits(report, settings.below, has_shortlist=opened.translator.has_shortlist, quiet=quiet)
    if texts.output_format == "json":
        write_line(json.dumps(report.record(), ensure_ascii=False))
    else:
        for line in table(report):
            write_line(line)
    note(
        f"{opened.directory.path}: calibration stored; translate --format jsonl uses it",
        quiet=quiet,
    )


def _tell_limits(
    report: "CalibrationReport", below: float, *, has_shortlist: bool, quiet: bool
) -> None:
    """Tells what the calibration is not fitted to."""
    if not report.wrong:
        warn(
            f"--below: no line has a chrF below {below:g}, so --doubt is fitted only to "
            "lines broken on purpose; raise it, or give lines that the model translates badly"
        )
    if report.is_alone:
        note(
            "only the log-probability is weighed: all signals together rank these lines worse",
            quiet=quiet,
        )
    if has_shortlist:
        warn(
            "MODEL has a shortlist: only sources are broken, not translations; to break both, use "
            "--shortlist none"
        )


def table(report: "CalibrationReport") -> "Iterator[str]":
    """Writes a report as lines of columns."""
    names = {
        "calibration_error": "calibration error",
        "calibration_error_given": "calibration error, unbroken lines",
        **{f"error_at_{n}": f"wrong among the most certain {n} %" for n in (50, 80, 90)},
    }
    yield f"{report.lines:,} lines, {report.wrong:,} of them wrong"
    yield f"{'AUROC':<36}{'lines':>7}{'doubt':>8}{'alone':>8}"
    for row in report.kinds:
        both = (_three_digits(value) for value in (row.auroc, row.auroc_of_probability))
        yield f"{row.kind:<36}{row.lines:>7,}" + "".join(f"{value:>8}" for value in both)
    doubt, alone = report.measures["auroc"]
    yield f"{'all':<43}{doubt:>8.3f}{alone:>8.3f}"
    for name, text in names.items():
        doubt, alone = report.measures[name]
        yield f"{text:<43}{100 * doubt:>7.1f}%{100 * alone:>7.1f}%"
    yield f"{'signal':<36}{'AUROC':>7}{'weight':>8}{'square':>8}"
    for name, (value, *terms) in report.signals.items():
        yield f"{name:<36}{value:>7.3f}{terms[0]:>8.2f}{terms[1]:>8.2f}"


def _three_digits(value: float) -> str:
    """Writes a number, or a dash where nothing is wrong and NaN."""
    return "-" if isnan(value) else f"{value:.3f}"
