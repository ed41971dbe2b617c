"""Settings of opening a model, and of its search where they differ from its own. Free of torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tformer_cli.errors import Setting, UsageError
from tformer_cli.search.config import (
    MOST_HYPOTHESES,
    NEED_SAMPLING,
    DecodingConfig,
    Engine,
    EnsembleSpace,
    PrecisionChoice,
    SentenceRule,
    TooLong,
)
from tformer_cli.settings import (
    Argument,
    Limits,
    argument,
    at_least,
    check_limits,
    dataclass,
    declared_options,
    literal_values,
    setting,
    type_problem,
    types_of,
)

if TYPE_CHECKING:
    from typing import Unpack

    from tformer_cli.search.keywords import DecodingOverrides

PANELS = ("Common", "Machine", "Search", "Sampling", "Large jobs")
"""Groups of these settings."""
SEEDS = 2**63
"""Number of seeds there are."""


@dataclass(frozen=True, kw_only=True)
class OpeningSettings:
    """Settings for opening a model, apart from those of the search."""

    device: str = setting(
        "auto",
        "auto, cpu, cuda or cuda:N. auto uses a GPU if there is one.",
        "Machine",
        metavar="DEVICE",
    )
    """A `ModelDirectory` stays where it is."""
    precision: PrecisionChoice = setting(
        "auto", "Precision to compute in. auto: the precision of the model's weights.", "Machine"
    )
    """On a CPU, float32 and int8 translations do not depend on their batch; see `Translator`."""
    engine: Engine = setting(
        "tformer",
        "Decoding engine. tformer: compiled kernels where they support the options, else torch.",
        "Machine",
    )
    """The only one that may search, or "tformer": the fastest that supports the settings; see
    `search_engines`."""
    threads: Annotated[int, at_least(0)] = setting(
        0, "CPU threads; 0 uses all cores.", "Machine", min=0, max=1024
    )
    """Not for the torch engine, which uses `torch.set_num_threads`."""
    seed: Annotated[
        int,
        Limits(
            f"from 0 to {SEEDS - 1}",
            {"minimum": 0, "exclusiveMaximum": SEEDS},
        ),
    ] = setting(1, "Random seed for sampling.", "Machine", min=0)
    too_long: TooLong = setting(
        "split",
        "For a line longer than the model can take: translate it in parts (split), cut it off "
        "(truncate), or stop (error).",
        "Large jobs",
    )
    adapter: Path | None = setting(
        None,
        "Low-rank adapter for MODEL, such as RUN/adapter or a peft adapter; it is merged into the "
        "weights.",
        shown_default="none",
        metavar="DIR",
        role="reads_adapter",
    )
    """With a `ModelDirectory` in place of its path the files are read again. `read_adapter` says
    whether an adapter knows the weights that it was trained for: those of peft do not."""
    source_language: str | None = setting(
        None,
        "Language of the source, for multilingual imported models.",
        "Common",
        shown_default="the model's",
        metavar="CODE",
    )
    target_language: str | None = setting(
        None,
        "Language to translate into, for multilingual imported models.",
        "Common",
        shown_default="the model's",
        metavar="CODE",
    )
    split_sentences: SentenceRule | None = setting(
        None,
        "Split lines into sentences and translate them one by one: models trained on "
        "sentences lose text of paragraphs. rule: at . ! ? before a capital, but not after "
        "abbreviations; sentencex: by that library, with the abbreviations of the model's "
        "source language; none: translate lines whole.",
        "Large jobs",
        shown_default="rule for a model trained on sentences, else none",
    )
    heads: Sequence[str] = setting(
        (),
        "Use only these attention heads. '!cross.5.3' switches off just that head. Repeatable.",
        "Search",
        shown_default="all heads",
        metavar="HEADS",
    )
    shortlist: str | None = setting(
        None,
        "Lexical shortlist: choose only among the target tokens that it lists for the source "
        "tokens, which is faster; scores are relative to these tokens. none: choose among all.",
        "Search",
        shown_default="MODEL's, if it has one",
        metavar="FILE|none",
        role="reads_file",
    )
    banned: Sequence[str] = argument(
        (), "Texts whose token sequences no translation may contain.", "Search"
    )
    ensemble: Sequence[Path] = argument(
        (), "Model directories of the same vocabulary that translate with it.", "Search"
    )
    ensemble_weights: Sequence[float] | None = argument(
        None, "Weights of the models, the opened model's first; None: equal weights.", "Search"
    )
    ensemble_space: EnsembleSpace = argument(
        "probability", "Space to average in: probabilities, or their logarithms (log).", "Search"
    )
    # What has no option and no argument is for programs of tformer
    tell: Callable[[str], None] | None = None
    """Called with a line about what takes long before the first translation, and with a beam that
    was raised."""
    before_torch: Callable[[], None] | None = None
    """Called before torch computes: where a program sets torch's threads. Opening sets nothing
    that holds for the whole process, and imports torch only for an engine that needs it."""

    def __post_init__(self) -> None:
        # Programs may give texts for paths
        object.__setattr__(self, "adapter", None if self.adapter is None else Path(self.adapter))
        object.__setattr__(self, "ensemble", tuple(map(Path, self.ensemble)))
        for name, kind in _CHECKED.items():
            if problem := type_problem(getattr(self, name), kind):
                raise UsageError.of("{}: {}", Setting(name), problem)
        try:
            check_limits(self)
        except ValueError as error:
            name, _, reason = str(error).partition(": ")
            raise UsageError.of("{}: {}", Setting(name), reason) from None
        if self.heads and self.ensemble:
            raise UsageError.of("{heads}: only for a single model; omit it or {ensemble}")

    def prepare_torch(self) -> None:
        """Calls `before_torch`."""
        if self.before_torch is not None:
            self.before_torch()


_CHECKED: Mapping[str, Any] = {
    name: kind
    for name, kind in types_of(OpeningSettings).items()
    if kind in (int, str) or literal_values(kind)
}
"""Numbers, texts and words: a Python program may give anything, whatever the types say."""


def settings_of_load() -> dict[str, tuple[Argument, Any]]:
    """Lists the arguments of `tformer.load` in groups: their words and their defaults."""
    opening = declared_options(OpeningSettings, Argument)
    rows = {name: (row, getattr(OpeningSettings, name)) for name, row in opening.items()}
    rows |= {name: (row, None) for name, row in declared_options(DecodingConfig, Argument).items()}
    return dict(sorted(rows.items(), key=lambda row: PANELS.index(row[1][0].panel or "Common")))


def split_options(options: Mapping[str, Any]) -> tuple[OpeningSettings, dict[str, Any]]:
    """Separates keyword arguments of `open_model` into opening settings and search settings."""
    names = {field.name for field in fields(OpeningSettings)}
    opening = {name: value for name, value in options.items() if name in names}
    search = {name: value for name, value in options.items() if name not in names}
    return OpeningSettings(**opening), search


def overridden(
    config: DecodingConfig,
    tell: Callable[[str], None] | None = None,
    **overrides: "Unpack[DecodingOverrides]",
) -> DecodingConfig:
    """Replaces a model's defaults that are given (not None) and checks the whole again.

    A given `n_best` raises the beam, or the candidates of sampling, where these are fewer.
    """
    settings: dict[str, Any] = {
        name: value for name, value in overrides.items() if value is not None
    }
    for name, kind in types_of(DecodingConfig).items():
        if name in settings and (problem := type_problem(settings[name], kind)):
            raise UsageError.of("{}: {}", Setting(name), problem)
    n_best = settings.pop("n_best", None)
    try:
        # `n_best` comes last, since it may raise the beam that the others have set
        chosen = replace(config, n_best=1, **settings)
        chosen = (
            replace(chosen, n_best=config.n_best)
            if n_best is None
            else _with_n_best(chosen, n_best, tell)
        )
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        raise UsageError.of("{}: {}", Setting(name), reason) from None
    idle = next((name for name in NEED_SAMPLING if name in settings and not chosen.sampling), None)
    if idle is not None:
        raise UsageError.of("{}: needs sampling; add {sampling}", Setting(idle))
    return chosen


def _with_n_best(
    config: DecodingConfig, n_best: int, tell: Callable[[str], None] | None
) -> DecodingConfig:
    """Asks for some translations of each line, and for a search that can find as many."""
    name, multiple = (
        ("candidates", 1) if config.sampling else ("beam_size", config.diversity_groups)
    )
    before = getattr(config, name)
    # Plain sampling draws as many as are asked for, whatever `candidates` says
    is_enough = n_best <= before or (config.sampling and config.risk == "none")
    if is_enough or n_best > MOST_HYPOTHESES:
        return replace(config, n_best=n_best)
    # Groups of diverse beam search are equally large, so they must divide the beam
    after = -(-n_best // multiple) * multiple
    larger: dict[str, Any] = {name: after}
    raised = replace(config, n_best=n_best, **larger)
    if tell is not None:
        what = name.replace("_", " ")
        tell(f"{what} raised from {before} to {after}, to find {n_best} translations")
    return raised


def generation_config(
    config: DecodingConfig,
    tell: Callable[[str], None] | None = None,
    **overrides: "Unpack[DecodingOverrides]",
) -> DecodingConfig:
    """Replaces the defaults of a language model as `overridden` does."""
    # Language models sample by default, but a beam size asks for a search. An explicit choice of
    # sampling still wins
    if overrides.get("beam_size") is not None and overrides.get("sampling") is None:
        overrides["sampling"] = False
    chosen = overridden(config, tell, **overrides)
    if chosen.coverage_penalty:
        raise UsageError.of("{coverage_penalty}: there is no source to cover; omit it")
    return chosen
