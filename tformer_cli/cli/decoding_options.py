"""Options of the search, shared by the commands that translate.

A command takes them all as ``**decoding``, under `takes_decoding_options`, and passes them on: each
is a field of `DecodingConfig`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tformer_cli.cli.completion import complete_heads
from tformer_cli.cli.console import note
from tformer_cli.cli.help_screen import COMMON, LARGE_JOBS, SAMPLING, SEARCH
from tformer_cli.cli.option_groups import Command, with_options
from tformer_cli.cli.options import (
    AdapterOption,
    DecodingPrecision,
    DecodingPrecisionOption,
    DeviceOption,
    Engine,
    EngineOption,
    SeedOption,
    ThreadsOption,
    option,
)
from tformer_cli.cli.path_roles import PathRole
from tformer_cli.cli.process import torch_preparation
from tformer_cli.cli.text_io import note_choices

if TYPE_CHECKING:
    from tformer_cli.workflows.opening.translator import Opened


THE_MODELS = "the model's"
"""Default shown for options that the model decides."""


def _option(kind: Any, panel: str, help_text: str, **details: Any) -> Any:  # noqa: ANN401
    return Annotated[
        kind | None, option(help_text, panel=panel, **{"shown": THE_MODELS, **details})
    ]


BeamSizeOption = _option(
    int, COMMON, "Beam size: hypotheses kept per line. 1 is greedy search.", min=1
)
LengthPenaltyOption = _option(
    float,
    SEARCH,
    "Length penalty: the exponent A of ((5 + T)/6)^A, which divides the log-probability of T "
    "tokens.",
    metavar="A",
    min=0.0,
)
NormalizationOption = _option(
    Literal["gnmt", "average"],
    SEARCH,
    "What log-probabilities are divided by: the length penalty's formula (gnmt), or the number of "
    "tokens (average).",
)
CoveragePenaltyOption = _option(
    float,
    SEARCH,
    "Weight of the coverage penalty (Wu et al. 2016), for source tokens that get little attention.",
)
SourceLanguageOption = Annotated[
    str | None,
    option(
        "Language of the source, for an imported model that must be told.",
        panel=COMMON,
        shown=THE_MODELS,
        metavar="CODE",
    ),
]
TargetLanguageOption = Annotated[
    str | None,
    option(
        "Language to translate into, for an imported model that knows several.",
        panel=COMMON,
        shown=THE_MODELS,
        metavar="CODE",
    ),
]
ShortlistOption = Annotated[
    str | None,
    option(
        "Lexical shortlist: choose target tokens only among those that it lists for the source's, "
        "which is faster; scores are relative to these tokens. none: choose among all.",
        panel=SEARCH,
        shown="MODEL's, if it has one",
        metavar="FILE|none",
    ),
    PathRole.reads_file,
]
_DECODING_OPTIONS: dict[str, Any] = {
    "beam_size": BeamSizeOption,
    "length_penalty": LengthPenaltyOption,
    "length_normalization": NormalizationOption,
    "coverage_penalty": CoveragePenaltyOption,
    "max_length": _option(
        int,
        SEARCH,
        "Longest translation, in tokens.",
        min=1,
        shown="the model's, and --max-length-ratio",
    ),
    "max_length_ratio": _option(
        float,
        SEARCH,
        "Longest translation, in tokens per source token; 20 more are always allowed.",
    ),
    "min_length": _option(int, SEARCH, "Shortest translation, in tokens."),
    "min_length_ratio": _option(float, SEARCH, "Shortest translation, in tokens per source token."),
    "no_repeat_ngram": _option(
        int, SEARCH, "Never repeat an n-gram of N tokens; 0 allows repetition."
    ),
    "repetition_penalty": _option(
        float,
        SEARCH,
        "Multiply the log-probability of tokens already in the translation by X (Keskar et al. "
        "2019); 1 changes nothing.",
    ),
    "diversity_groups": _option(
        int,
        SEARCH,
        "Groups of diverse beam search (Vijayakumar et al. 2018); 1 is plain beam search.",
    ),
    "diversity_penalty": _option(
        float, SEARCH, "Penalty on a token for each earlier group that chose it at this step."
    ),
    "sampling": _option(bool, SAMPLING, "Sample translations instead of searching."),
    "temperature": _option(
        float, SAMPLING, "Sampling temperature; below 1 likely tokens become likelier."
    ),
    "top_k": _option(int, SAMPLING, "Sample from the N most probable tokens; 0 is all."),
    "top_p": _option(
        float,
        SAMPLING,
        "Nucleus sampling: sample from the fewest tokens whose probabilities sum to X.",
    ),
    "risk": _option(
        Literal["none", "chrf", "bleu"],
        SAMPLING,
        "Minimum Bayes risk decoding with this utility, over the beam or over sampled candidates.",
    ),
    "candidates": _option(
        int, SAMPLING, "Candidates to sample for minimum Bayes risk decoding with --sampling."
    ),
    "distinct_texts": _option(bool, SAMPLING, "List each text only once in an n-best list."),
    "batch_tokens": _option(
        int, LARGE_JOBS, "Source tokens per batch; 0 is what is fastest.", min=0
    ),
}


def takes_decoding_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` every option of the search."""
    return with_options(command, {name: (kind, None) for name, kind in _DECODING_OPTIONS.items()})


_OF_SOURCES = ("coverage_penalty", "max_length_ratio", "min_length_ratio")
_OF_TEXTS: dict[str, Any] = {
    **{name: kind for name, kind in _DECODING_OPTIONS.items() if name not in _OF_SOURCES},
    "beam_size": _option(
        int, COMMON, "Beam size of a search instead of sampling. 1 is greedy search.", min=1
    ),
    "max_length": _option(
        int, COMMON, "Most tokens that follow a prompt.", min=1, shown="the model's, or 200"
    ),
    "min_length": _option(int, SEARCH, "Fewest tokens that follow a prompt."),
    "repetition_penalty": _option(
        float,
        SEARCH,
        "Multiply the log-probability of tokens already written by X (Keskar et al. 2019); 1 "
        "changes nothing.",
    ),
    "sampling": _option(bool, SAMPLING, "Sample texts instead of searching for the best."),
    "batch_tokens": _option(
        int, LARGE_JOBS, "Prompt tokens per batch; 0 is what is fastest.", min=0
    ),
}
"""Options of the search that a language model has."""


def takes_generation_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` the options of a search for texts."""
    return with_options(command, {name: (kind, None) for name, kind in _OF_TEXTS.items()})


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions:
    """Options of a translator besides those of its search."""

    split_sentences: Annotated[
        Literal["rule", "sentencex"] | None,
        option(
            "Split lines into sentences and translate them one by one: models trained on "
            "sentences lose text of paragraphs. rule: at . ! ? before a capital, but not after "
            "abbreviations; sentencex: by that library, with the abbreviations of the model's "
            "source language.",
            shown="lines are not split",
            panel=LARGE_JOBS,
        ),
    ] = None
    too_long: Annotated[
        Literal["split", "truncate", "error"],
        option(
            "A line longer than the model can take: translate it in parts (split), cut it off "
            "(truncate), or stop (error).",
            panel=LARGE_JOBS,
        ),
    ] = "split"
    adapter: AdapterOption = None
    source_language: SourceLanguageOption = None
    target_language: TargetLanguageOption = None
    heads: Annotated[
        list[str] | None,
        option(
            "Use these attention heads and switch all others off. '!cross.5.3' switches off "
            "that one. Repeatable.",
            "--heads",
            panel=SEARCH,
            shown="all heads",
            metavar="HEADS",
            autocompletion=complete_heads,
        ),
    ] = None
    shortlist: ShortlistOption = None
    device: DeviceOption = "auto"
    precision: DecodingPrecisionOption = DecodingPrecision.auto
    engine: EngineOption = Engine.tformer
    seed: SeedOption = 1
    threads: ThreadsOption = 0

    def settings(self, *, quiet: bool) -> dict[str, Any]:
        """Returns them as arguments of `open_translator`."""
        return {
            "device": self.device,
            "precision": self.precision.value,
            "engine": self.engine.value,
            "threads": self.threads,
            "seed": self.seed,
            "too_long": self.too_long,
            "adapter": self.adapter,
            "source_language": self.source_language,
            "target_language": self.target_language,
            "split_sentences": self.split_sentences,
            "heads": self.heads or (),
            "shortlist": self.shortlist,
            "tell": partial(note, quiet=quiet),
        }

    def open(self, model: Path, *, quiet: bool, **more: Any) -> "Opened":  # noqa: ANN401
        """Opens a model for translation and notes where it computes.

        Args:
            model: the model directory.
            quiet: true to leave out notes.
            **more: other arguments of `open_translator`.
        """
        from tformer_cli.workflows.opening.translator import open_translator

        before_torch = torch_preparation(self.threads)
        settings = self.settings(quiet=quiet)
        opened = open_translator(model, **settings, before_torch=before_torch, **more)
        note_choices(opened, quiet=quiet)
        return opened
