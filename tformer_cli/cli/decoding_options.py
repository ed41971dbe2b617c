"""Options of the search, shared by the commands that translate.

A command that takes them all names them once, as ``**decoding``, under `takes_decoding_options`,
and hands them on as they come: each is a field of `DecodingConfig`.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

SEARCH = "Search"
SAMPLING = "Sampling and candidates"
Command = TypeVar("Command", bound=Callable[..., None])


class TooLongChoice(StrEnum):
    """Values of `--too-long`."""

    in_parts = "split"
    cut_off = "truncate"
    stop = "error"


class NormalizationChoice(StrEnum):
    """Values of `--length-normalization`."""

    gnmt = "gnmt"
    average = "average"


class RiskChoice(StrEnum):
    """Values of `--risk`."""

    none = "none"
    chrf = "chrf"
    bleu = "bleu"


BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Hypotheses kept for each line; 1 is greedy search [the model's]."),
]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="Exponent A of ((5 + T)/6)^A, which divides log-probabilities [the model's]."
    ),
]
TooLongOption = Annotated[
    TooLongChoice,
    typer.Option(
        help="A line longer than the model takes: translate it in parts, cut it off, or stop."
    ),
]
HeadsOffOption = Annotated[
    list[str] | None,
    typer.Option(
        "--heads",
        metavar="SELECTION",
        help="Translate with these attention heads, the others switched off: such as "
        "'!cross.5.3' (all but one). Repeatable [all heads].",
    ),
]


def _option(kind: Any, panel: str, help_text: str, **details: Any) -> Any:  # noqa: ANN401
    return Annotated[kind | None, typer.Option(help=help_text, rich_help_panel=panel, **details)]


_DECODING_OPTIONS: dict[str, Any] = {
    "beam_size": BeamSizeOption,
    "length_penalty": LengthPenaltyOption,
    "max_length": Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most tokens of a translation [by the source's length, as the model's defaults "
            "say].",
        ),
    ],
    "batch_tokens": Annotated[
        int | None, typer.Option(min=1, help="Source tokens translated together [the model's].")
    ],
    "max_length_ratio": _option(
        float, SEARCH, "Most tokens for each token of the source, and 20 more."
    ),
    "min_length": _option(int, SEARCH, "Fewest tokens of a translation."),
    "min_length_ratio": _option(float, SEARCH, "Fewest tokens for each token of the source."),
    "length_normalization": _option(
        NormalizationChoice, SEARCH, "Divide log-probabilities by A's formula, or by T."
    ),
    "coverage_penalty": _option(
        float, SEARCH, "Weight of the penalty for source tokens that were not attended to."
    ),
    "no_repeat_ngram": _option(int, SEARCH, "Say no run of this many tokens twice."),
    "repetition_penalty": _option(
        float, SEARCH, "Factor of the log-probability of tokens already said."
    ),
    "diversity_groups": _option(int, SEARCH, "Groups of a diverse beam search."),
    "diversity_penalty": _option(
        float, SEARCH, "What a token loses for each earlier group's hypothesis that takes it."
    ),
    "sampling": _option(bool, SAMPLING, "Draw translations at random; --seed decides which."),
    "temperature": _option(float, SAMPLING, "Logits are divided by it before drawing."),
    "top_k": _option(int, SAMPLING, "Draw from the so many most probable tokens."),
    "top_p": _option(
        float, SAMPLING, "Draw from the fewest tokens with this probability together."
    ),
    "risk": _option(
        RiskChoice, SAMPLING, "Put the candidate first that all candidates are most like."
    ),
    "candidates": _option(int, SAMPLING, "Translations drawn for --risk with --sampling."),
    "distinct_texts": _option(bool, SAMPLING, "Return no text of --n-best twice."),
}


def takes_decoding_options(command: Command) -> Command:
    """Gives a command that ends in ``**decoding`` every option of the search."""
    return with_options(command, {name: (kind, None) for name, kind in _DECODING_OPTIONS.items()})


def with_options(command: Command, options: Mapping[str, tuple[Any, Any]]) -> Command:
    """Gives a command that ends in ``**some_name`` more options, which arrive under that name.

    Args:
        command: the command; it is changed.
        options: for each the annotated type and the default.
    """
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    (rest,) = (p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    # Typer reads both
    command.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    del command.__annotations__[rest]
    return command
