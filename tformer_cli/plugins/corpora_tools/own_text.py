"""Two aligned files, or a table of pairs, made into held-out sets and a recipe.

Where the second file or column has few different lines, they are labels of a classifier.

`read_own_text` looks at the files and refuses what cannot be trained on; nothing is written.
`write_own_text` splits them into RUN/data and writes the chosen recipe next to it, so that the same
command finds both again: a run that has begun keeps its recipe, whatever a newer version chooses.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.config_file import CONFIG
from tformer_cli.artifacts.overwriting import NamedPath, Output, Writes, check_outputs, is_same
from tformer_cli.errors import DataError, UsageError
from tformer_cli.files.atomic import aside_of, not_writable, replaceable_directory, write_text
from tformer_cli.files.regular_file import MIB, hash_file, read_regular
from tformer_cli.plugins.corpora_tools.choose import (
    Choice,
    CorpusSize,
    choose,
    estimate,
    expectation,
    given_limits,
    recipe_text,
)
from tformer_cli.plugins.corpora_tools.quality.clean_data import REPORT, check_output
from tformer_cli.plugins.corpora_tools.quality.examine import Progress
from tformer_cli.plugins.corpora_tools.quality.facts import LABELED
from tformer_cli.plugins.corpora_tools.quality.given import GivenData, given_data
from tformer_cli.plugins.corpora_tools.quality.split_data import (
    SCHEMA,
    SplitReport,
    TooFewApartError,
    set_names,
    split_data,
)
from tformer_cli.recipe import has_run, recipe_names
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import ending_of, plain_name
from tformer_cli.wording import count_of, is_blank, visible

DATA, CHOSEN = "data", "chosen.toml"
"""Names in a run directory: the sets that the text was split into, and the recipe chosen for it."""
FIRST_LINE = "Chosen by tformer train from the size of the text and the limits of the run."
FEWEST = 200
"""Fewest pairs that leave enough to train on after the held-out sets."""
MOST_HELD_OUT, SHARE_HELD_OUT, LEAST_HELD_OUT = 1000, 1 / 25, 8
MOST_LABELS, EXAMPLES_A_LABEL = 100, 10
"""Different lines of a side that are labels: at most as many, each of as many examples."""
TABLE = ".tsv"
LARGEST = MIB
"""Bytes of a chosen recipe."""
_BATCH_KEYS = frozenset({"training", "training.tokens_per_batch", "training.accumulate"})
"""Keys of a recipe after which its batches are as the user says."""


@dataclass(frozen=True, kw_only=True)
class OwnText:
    """A user's parallel text, and how it is recognized when the command is repeated."""

    inputs: GivenData
    size: CorpusSize
    header: tuple[str, ...]
    """Comments at the top of the chosen recipe; they hold the hashes of the files."""

    @property
    def files(self) -> str:
        corpus = self.inputs.data.train[0]
        return f"{corpus.source}, {corpus.target}" if corpus.source else corpus.tsv

    @property
    def n_held_out(self) -> int:
        wanted = min(MOST_HELD_OUT, round(SHARE_HELD_OUT * self.size.n_pairs))
        return max(wanted, LEAST_HELD_OUT)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The recipe of a run on a user's text."""

    text: str
    """In TOML, with reasons."""
    choices: tuple[Choice, ...] = ()
    """None of a run that has begun, which keeps what was chosen."""
    expected: str = ""


def names_own_text(recipe: str, target: str | None) -> bool:
    """Returns whether the arguments of `train` name text and not a recipe."""
    if target is None:
        return ending_of(recipe) == TABLE
    if recipe in recipe_names() or ending_of(recipe) == ".toml":
        raise UsageError(f"TARGET: the recipe {recipe} names its own text; omit {target}")
    # Aligned by their lines, a table would be text with tabs in it
    for table, other in ((recipe, target), (target, recipe)):
        if ending_of(table) == TABLE:
            raise UsageError(f"TARGET: {table} is a table of pairs; omit {other}")
    return True


def read_own_text(files: Sequence[str], run: Path) -> OwnText:
    """Reads the files once, and checks that they are aligned, different and large enough."""
    inputs = [NamedPath(name="SOURCE", path=Path(file)) for file in files]
    if len(inputs) > 1 and is_same(*inputs):
        raise UsageError(f"SOURCE, TARGET: {files[0]} is given twice; name one file per language")
    place = Output(name="--output", path=run / DATA, writes=Writes.DIRECTORY)
    check_outputs([place], inputs)
    corpora = given_data(files)
    # A pass over everything: different line counts would else be found after minutes of work
    n_pairs = source_bytes = target_bytes = 0
    lines: tuple[set[str], ...] = (set(), set())
    for pair in read_corpus(corpora.data.train[0]):
        if not any(map(is_blank, pair)):
            n_pairs += 1
            source_bytes += len(pair.source.encode("utf-8", "replace"))
            target_bytes += len(pair.target.encode("utf-8", "replace"))
            for known, text in zip(lines, pair, strict=True):
                if len(known) <= MOST_LABELS:
                    known.add(text.strip())
    names = ", ".join(files)
    if n_pairs < FEWEST:
        raise DataError(
            f"{names}: {count_of(n_pairs, 'pair')} with text on both sides leave nothing to hold "
            f"out; give {FEWEST} or more, or fine-tune with a recipe: tformer recipes copy "
            "template"
        )
    n_source, n_labels = (
        len(known) if 1 < len(known) <= min(MOST_LABELS, n_pairs // EXAMPLES_A_LABEL) else 0
        for known in lines
    )
    if n_source:
        first, *others = files
        order = f"{others[0]} {first}" if others else "the column of texts first"
        raise DataError(
            f"{names}: the source has only {n_source} different lines, which look like labels; "
            f"for a classifier give {order}"
        )
    if n_labels:
        corpora = replace(corpora, kind=LABELED, languages=(corpora.languages[0], ""))
    # By their names and content: another way to write a path is no other text
    hashes = ((visible(Path(file).name), hash_file(Path(file))) for file in files)
    header = (FIRST_LINE, *(f"{name}: SHA-256 {content}" for name, content in hashes))
    n_bytes = source_bytes if n_labels else target_bytes
    size = CorpusSize(n_pairs=n_pairs, target_bytes=n_bytes, n_labels=n_labels)
    return OwnText(inputs=corpora, size=size, header=header)


def choose_recipe(
    own: OwnText,
    run: Path,
    runs: Iterable[Path],
    values: Mapping[str, Any],
    *,
    fresh: bool,
    fine_tunes: bool = False,
    preset: str = "",
    has_bfloat16: bool = True,
    gpu_memory: int = 0,
    overridden: Sequence[str] = (),
    is_chosen: bool = False,
) -> Chosen:
    """Chooses the recipe of runs in a directory, or finds that of runs that have begun or will."""
    is_there = is_chosen or (not fresh and any(map(has_run, runs)))
    begun = _read_begun_recipe(own, run) if is_there else None
    earlier = _text_of(run / CHOSEN)
    if earlier and FIRST_LINE not in earlier:
        raise _another_file(run / CHOSEN)
    if begun is None and not fresh and (run / CONFIG).exists():
        raise UsageError(f"--output: {run} holds a model but not a run; name another directory")
    if begun is not None:
        return Chosen(text=begun)
    limits = given_limits(values)
    reach = estimate(
        own.size,
        limits,
        on_gpu=gpu_memory > 0,
        fine_tunes=fine_tunes,
        preset=preset,
        precision="bfloat16" if has_bfloat16 else "float32",
        # The size of a model that is given is unknown here, and a given batch is the user's
        gpu_memory=0 if fine_tunes or not _BATCH_KEYS.isdisjoint(overridden) else gpu_memory,
    )
    settings = choose(own.size, limits, reach, fine_tunes=fine_tunes)
    # A table that is given replaces all keys that were chosen for it
    chosen = tuple(
        choice
        for choice in settings
        if not any(f"{choice.key}.".startswith(f"{key}.") for key in overridden)
    )
    tokens = "tokens of texts" if own.size.n_labels else "target tokens"
    size = f"{own.size.n_pairs:,} pairs, about {own.size.target_tokens:,.0f} {tokens}"
    return Chosen(
        text=recipe_text([*own.header, size], [*_data(own, run), *chosen]),
        choices=tuple(choice for choice in chosen if choice.why),
        expected=expectation(own.size, limits, reach, fine_tunes=fine_tunes),
    )


def check_place(run: Path) -> None:
    """Refuses a place where the sets of a run cannot be written, before anything is computed."""
    data = run / DATA
    replaceable_directory(data)
    check_output(data, SCHEMA)
    # Only creating a file tells: root may write anywhere, but not into every file system
    aside = aside_of(data)
    missing = [path for path in (aside, *aside.parents) if not path.exists()]
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise not_writable(data, error) from None
    finally:
        for path in missing:
            with suppress(OSError):  # it was not made, or holds something by now
                path.rmdir()


def is_written(run: Path, chosen: Chosen) -> bool:
    """Returns whether the sets and the recipe of a run are there already."""
    return (run / DATA / REPORT).is_file() and _text_of(run / CHOSEN) == chosen.text


def write_own_text(
    own: OwnText, run: Path, chosen: Chosen, progress: Progress | None = None
) -> tuple[SplitReport, bool]:
    """Writes the sets and the recipe; returns the report, and whether near copies stay together."""
    was_there = run.exists()
    try:
        report, is_near = _split(own, run / DATA, progress)
        # Last: a recipe says that its sets are whole
        write_text(run / CHOSEN, chosen.text)
    except BaseException:
        if not was_there:
            with suppress(OSError):  # it holds something by now, which stays
                run.rmdir()
        raise
    return report, is_near


def test_corpus(own: OwnText, run: Path) -> CorpusConfig:
    """The test set of a run, with whole paths."""
    corpus = own.inputs.data.train[0]
    names = [str(run / DATA / name) for name in set_names(corpus)["test"]]
    if corpus.source:
        return CorpusConfig(source=names[0], target=names[1])
    return CorpusConfig(tsv=names[0])


def _read_begun_recipe(own: OwnText, run: Path) -> str:
    """The recipe of a run that has begun on these files."""
    text, advice = _text_of(run / CHOSEN), "use another directory, or --fresh to start over"
    if not text:
        raise UsageError(f"{run}: holds a run that was started with a recipe; {advice}")
    # In their order: the languages exchanged are another translation
    header = [f"# {line}" for line in own.header]
    if [line for line in text.splitlines() if line in header] != header:
        raise UsageError(f"{run}: the run was started with other text, not {own.files}; {advice}")
    return text


def _text_of(path: Path) -> str:
    """Reads a chosen recipe; empty: there is none."""
    try:
        return read_regular(path, LARGEST).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        # A directory, or a file that is too long or unreadable: not written here
        raise _another_file(path) from None


def _another_file(path: Path) -> UsageError:
    return UsageError(f"--output: {path} is another file; name another directory")


def _data(own: OwnText, run: Path) -> list[Choice]:
    """Choices of `[data]`: the sets, and the languages that the files are named for."""
    data, names = own.inputs.data, set_names(own.inputs.data.train[0])
    languages = [
        Choice(key=f"data.{side}_language", value=code, why=f"the ending of {plain_name(file)}")
        for side, code, file in (
            ("source", data.source_language, data.train[0].source),
            ("target", data.target_language, data.train[0].target),
        )
        if code and not (side == "target" and own.size.n_labels)
    ]
    keys = ("source", "target") if data.train[0].source else ("tsv",)
    sets = [
        Choice(key=f"data.{name}", value=[dict(zip(keys, names[name], strict=True))])
        for name in ("train", "valid")
    ]
    origin = f"{own.files}, split by tformer train"
    return [
        *languages,
        Choice(key="data.origin", value=origin),
        Choice(key="data.directory", value=str(run / DATA)),
        *sets,
    ]


def _split(own: OwnText, output: Path, progress: Progress | None) -> tuple[SplitReport, bool]:
    """Holds pairs out; where text repeats itself too much, fewer, and then without near copies."""
    # A small set measures less well, but a copy in the training set measures nothing
    most = own.n_held_out
    for near in (True, False):
        for n_pairs in (most, max(LEAST_HELD_OUT, most // 4)):
            with suppress(TooFewApartError):
                report = split_data(
                    own.inputs,
                    output,
                    n_valid=n_pairs,
                    n_test=n_pairs,
                    near=near,
                    progress=progress,
                )
                return report, near
    raise DataError(
        f"{own.files}: nearly all sentences occur several times, so none can be held out; hold "
        "some out by hand and name them in a recipe: tformer recipes copy template"
    )
