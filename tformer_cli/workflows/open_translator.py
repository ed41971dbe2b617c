"""Opening a model directory for translation, by tformer's own search or another engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch

from tformer_cli.artifacts.model_directory import ModelDirectory, load_model_directory
from tformer_cli.decoding.config import MOST_HYPOTHESES
from tformer_cli.decoding.translator import TooLong, Translator
from tformer_cli.errors import UsageError
from tformer_cli.model.runtime import Precision, prepare_cpu, resolve_device, set_threads
from tformer_cli.workflows.engines import ctranslate2_engine, search_engines
from tformer_cli.workflows.precision import choose_numbers, computing_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.engine import SearchedModel, SearchEngine
    from tformer_cli.decoding.ensemble import EnsembleSpace
    from tformer_cli.workflows.translation_options import (
        DecodingOverrides,
        Engine,
        PrecisionChoice,
    )

SEEDS = 2**63
"""Seeds there are for torch's generators."""
OF_SAMPLING = ("temperature", "top_k", "top_p", "candidates")
"""Settings that beam search does not look at."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model directory ready to translate, and where and how it computes."""

    directory: ModelDirectory
    translator: Translator
    device: torch.device
    precision: PrecisionChoice
    engine: Engine = "tformer"


def open_translator(
    model: Path | str | ModelDirectory,
    *,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    engine: Engine = "tformer",
    threads: int = 0,
    seed: int = 1,
    too_long: TooLong = "split",
    banned: Sequence[str] = (),
    ensemble: Sequence[Path] = (),
    ensemble_weights: Sequence[float] | None = None,
    ensemble_space: EnsembleSpace = "probability",
    heads: Sequence[str] = (),
    tell: Callable[[str], None] | None = None,
    **overrides: Unpack[DecodingOverrides],
) -> Opened:
    """Reads a model directory and connects it to a translator.

    Args:
        model: a model directory, or its path.
        device: "auto", "cpu", "cuda" or "cuda:N"; a `ModelDirectory` stays where it is.
        precision: "float32", "bfloat16", "int8" (on the CPU), or "auto", which is what the weights
            are held in. In float32 and int8 on a CPU a translation does not depend on what is
            translated beside it; of a GPU see `Translator`.
        engine: "tformer": the fastest that supports the settings; or the only one that may search,
            see `engines.search_engines`; "ctranslate2" is for a model that `export` was run on.
        threads: CPU threads (0: torch's choice).
        seed: of what is sampled; greedy and beam search draw nothing.
        too_long: what to do with lines longer than the model takes.
        banned: texts whose tokens no translation may hold in a row.
        ensemble: model directories of the same vocabulary that translate with it.
        ensemble_weights: how much the models count, the first one's first; None: equally.
        ensemble_space: whether probabilities are averaged or their logarithms.
        heads: the attention heads to translate with, named as in
            `inspection.heads.selectors`; the others stay switched off in this model. None given:
            all, and nothing is set.
        tell: is told, in a line, what takes a while before the first translation, and that a beam
            was raised.
        **overrides: fields of `DecodingConfig` that differ from the model's defaults; None is
            as if it were not given. An `n_best` beyond the beam raises the beam.

    Raises:
        UsageError: if the device is not there, a setting is impossible, or the engine is not
            installed or does not know a setting.
        ArtifactError: if the model directory or its export cannot be used.
    """
    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    is_shared = isinstance(model, ModelDirectory)
    if not 0 <= seed < SEEDS:
        raise UsageError(f"--seed: must be from 0 to {SEEDS - 1}, but is {seed}")
    torch.manual_seed(seed)
    if not isinstance(model, ModelDirectory):
        try:
            place = resolve_device(device)
        except ValueError as error:
            raise UsageError(f"--device: {error}") from None
        model = load_model_directory(Path(model), place, takes_int8=engine != "ctranslate2")
    if heads and engine == "ctranslate2":
        raise UsageError("--heads: --engine ctranslate2 uses all heads; omit one of the two")
    if heads and ensemble:
        raise UsageError("--heads: selects heads of one model; omit it or --ensemble")
    if heads:
        from tformer_cli.inspection.ablation.gates import keep_only
        from tformer_cli.inspection.capture.heads import head_layout
        from tformer_cli.inspection.heads.selectors import select_heads

        keep_only(model.model, select_heads(heads, head_layout(model.model)))
    place = next(model.model.parameters()).device
    decoding = overridden(model.decoding, tell, **overrides)
    searched: SearchedModel = model.model
    engines: list[SearchEngine]
    if engine == "ctranslate2":
        if ensemble:
            raise UsageError("--ensemble: --engine ctranslate2 uses one model; omit one of the two")
        chosen: PrecisionChoice = "float32" if precision == "auto" else precision
        n_threads = threads or torch.get_num_threads()
        engines = [ctranslate2_engine(model.path, model.tokenizer, place, chosen, n_threads)]
    else:
        chosen = choose_numbers(model, precision)
        model = computing_in(model, chosen, may_change=not is_shared)
        searched = model.model
        if ensemble:
            from tformer_cli.workflows.ensemble import join_models

            searched = join_models(model, ensemble, ensemble_weights, ensemble_space, chosen)
        own: Precision = "bfloat16" if chosen == "bfloat16" else "float32"
        engines = search_engines(engine, place, own, tell)
    translator = Translator(
        searched,
        model.tokenizer,
        decoding,
        engines=engines,
        too_long=too_long,
        seed=seed,
        banned=banned,
    )
    translator.check()
    return Opened(
        directory=model, translator=translator, device=place, precision=chosen, engine=engine
    )


def overridden(
    config: DecodingConfig,
    tell: Callable[[str], None] | None = None,
    **overrides: Unpack[DecodingOverrides],
) -> DecodingConfig:
    """Replaces the fields that are given (not None) and checks the whole again.

    A given `n_best` raises the beam, or the candidates of sampling, where these are fewer.

    Args:
        config: a model's defaults.
        tell: is told of what was raised.
        **overrides: the fields.

    Raises:
        UsageError: naming the option that cannot be.
    """
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    n_best = given.pop("n_best", None)
    try:
        chosen = replace(config, n_best=1, **given)
        chosen = (
            replace(chosen, n_best=config.n_best)
            if n_best is None
            else _with_n_best(chosen, n_best, tell)
        )
    except ValueError as error:
        name, _, reason = str(error).partition(": ")
        raise UsageError(f"--{name.replace('_', '-')}: {reason}") from None
    idle = next((name for name in OF_SAMPLING if name in given and not chosen.sampling), None)
    if idle is not None:
        raise UsageError(f"--{idle.replace('_', '-')}: needs sampling; add --sampling")
    return chosen


def _with_n_best(
    config: DecodingConfig, n_best: int, tell: Callable[[str], None] | None
) -> DecodingConfig:
    """Asks for some translations of each line, and for a search that can find as many."""
    name, multiple = (
        ("candidates", 1) if config.sampling else ("beam_size", config.diversity_groups)
    )
    before = getattr(config, name)
    is_enough = n_best <= before or (config.sampling and config.risk == "none")
    if is_enough or n_best > MOST_HYPOTHESES:
        return replace(config, n_best=n_best)
    after = -(-n_best // multiple) * multiple
    larger: dict[str, Any] = {name: after}
    raised = replace(config, n_best=n_best, **larger)
    if tell is not None:
        what = name.replace("_", " ")
        tell(f"{what} raised from {before} to {after}, to find {n_best} translations")
    return raised
