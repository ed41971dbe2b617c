"""Settings of the commands that check, clean, split and deduplicate corpora."""

# The command line reads this module at every start: checks are imported where they are used.

from collections.abc import Collection
from dataclasses import dataclass, fields

from tformer_cli.errors import UsageError
from tformer_cli.settings import setting

NEAR = (
    "Also find near-duplicates of earlier pairs or texts and of held-out sentences, by MinHash; "
    "takes longer, and 0.4 KB of disk space each."
)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Fields of a table that hold sentences, and their languages."""

    source_field: str = setting(
        "",
        "Column (from 1) or JSON field of the source.",
        metavar="COLUMN",
        shown_default="1, or source",
    )
    target_field: str = setting(
        "", "Column or JSON field of the target.", metavar="COLUMN", shown_default="2, or target"
    )
    text_field: str = setting(
        "",
        "Column or JSON field of texts, for a file without pairs; checks of pairs are skipped.",
        metavar="COLUMN",
        shown_default="none; 1 or text with --label-field",
    )
    label_field: str = setting(
        "", "Column or JSON field of the texts' labels.", metavar="COLUMN", shown_default="none"
    )
    source_language: str = setting(
        "",
        "Language of the source, or of texts, such as en.",
        metavar="CODE",
        shown_default="the file's ending",
    )
    target_language: str = setting(
        "", "Target language.", metavar="CODE", shown_default="the file's ending"
    )

    @property
    def names_fields(self) -> str:
        """The options of fields that are given; empty: none."""
        options = options_given(self, but=("source_language", "target_language"))
        return ", ".join(option for option, _ in options)

    def languages(self) -> list[tuple[str, str]]:
        fields_of = ("source_field", "target_field", "text_field", "label_field")
        return options_given(self, but=fields_of)


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """Choice of checks, and their limits."""

    only: tuple[str, ...] = setting(
        (),
        "Run only these checks; repeatable, or separated by commas.",
        metavar="CHECK",
        shown_default="all",
    )
    without: tuple[str, ...] = setting(
        (), "Skip these checks.", metavar="CHECK", shown_default="none"
    )
    held_out: tuple[str, ...] = setting(
        (),
        "File of test or validation sentences that must not be in the corpus: text or a table; "
        "repeatable.",
        metavar="FILE",
        shown_default="none",
        role="reads_file",
    )
    near: bool = setting(False, NEAR)
    detect_languages: bool = setting(
        False,
        "Identify languages with a detector of 139 languages, which also finds the corpus's own, "
        "instead of by scripts and common words; needs the extra langid.",
    )
    scores: tuple[str, ...] = setting(
        (),
        "A translation model's scores of all pairs, as `tformer score --format jsonl` writes "
        "them; with two files, one for each direction, pairs are ranked by dual conditional "
        "cross-entropy (Junczys-Dowmunt 2018).",
        metavar="FILE",
        shown_default="none",
        role="reads_file",
    )
    worst_share: float = setting(
        0.1, "Share of pairs, those with the lowest scores, to report as doubtful."
    )
    max_characters: int = setting(1500, "Maximum number of characters in a side.", min=1)
    max_deviation: float = setting(
        4.0,
        "Maximum number of standard deviations between a pair's length ratio and the corpus's.",
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.worst_share < 1.0:
            raise UsageError(
                f"--worst-share: must be above 0 and below 1, but is {self.worst_share:g}"
            )
        for name in ("max_characters", "max_deviation"):
            if not (value := getattr(self, name)) > 0:  # nor NaN
                option = name.replace("_", "-")
                raise UsageError(f"--{option}: must be above 0, but is {value}; change it")

    def list_options(self) -> list[tuple[str, str]]:
        # the names of checks are chosen anew for each command that mends
        return options_given(self, but=("only", "without"))


def options_given(settings: Fields | CheckSettings, but: Collection[str]) -> list[tuple[str, str]]:
    """The options that are given, apart from some, each with its value."""
    options = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name not in but and value != field.default:
            option = f"--{field.name.replace('_', '-')}"
            values = value if isinstance(value, tuple) else [value]
            options += [(option, "" if each is True else str(each)) for each in values]
    return options
