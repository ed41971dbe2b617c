"""Opening a model directory for translation, by tformer's own search or another engine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tformer_cli.acceleration import has_fast
from tformer_cli.artifacts.model_directory import (
    ModelDirectory,
    load_model_directory,
    read_model_directory,
)
from tformer_cli.decoding.config import MOST_HYPOTHESES
from tformer_cli.decoding.translator import TooLong, Translator
from tformer_cli.errors import UsageError
from tformer_cli.runtime import keep_freed_pages
from tformer_cli.workflows.engines import (
    LateTorchEngine,
    ctranslate2_engine,
    late_engines,
    search_engines,
)
from tformer_cli.workflows.precision import choose_numbers, computing_in
from tformer_cli.workflows.stored_model import DirectoryModel, is_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from tformer_cli.artifacts.config_file import WeightType
    from tformer_cli.decoding.config import DecodingConfig, DecodingOverrides
    from tformer_cli.decoding.engine import SearchedModel, SearchEngine
    from tformer_cli.decoding.ensemble import EnsembleSpace
    from tformer_cli.model.config import Precision
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.workflows.translation_options import (
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
    place: str
    """Name of the device."""
    precision: PrecisionChoice
    engine: Engine = "tformer"

    @property
    def device(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.place)


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
    if threads < 0:
        raise UsageError(f"--threads: must be at least 0, but is {threads}")
    is_shared = isinstance(model, ModelDirectory)
    if not 0 <= seed < SEEDS:
        raise UsageError(f"--seed: must be from 0 to {SEEDS - 1}, but is {seed}")
    if "torch" in sys.modules:  # if not, only once a model is made
        _prepare_torch(threads, seed)
    if not isinstance(model, ModelDirectory):
        place = "cpu" if is_cpu(device) else _resolved(device, threads, seed)
        if place == "cpu" and engine in ("tformer", "compiled") and not (heads or ensemble):
            stored = _open_stored(
                Path(model), precision, engine, threads, seed, too_long, banned, tell, overrides
            )
            if stored is not None:
                return stored
        _prepare_torch(threads, seed)
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
    where = next(model.model.parameters()).device
    decoding = overridden(model.decoding, tell, **overrides)
    searched: SearchedModel = model.model
    engines: list[SearchEngine]
    if engine == "ctranslate2":
        import torch

        if ensemble:
            raise UsageError("--ensemble: --engine ctranslate2 uses one model; omit one of the two")
        chosen: PrecisionChoice = "float32" if precision == "auto" else precision
        n_threads = threads or torch.get_num_threads()
        engines = [ctranslate2_engine(model.path, model.tokenizer, where, chosen, n_threads)]
    else:
        chosen = choose_numbers(model, precision, str(where))
        model = computing_in(model, chosen, may_change=not is_shared)
        searched = model.model
        if ensemble:
            if decoding.coverage_penalty:
                raise UsageError("--coverage-penalty: needs a single model; omit it or --ensemble")
            from tformer_cli.workflows.ensemble import join_models

            searched = join_models(model, ensemble, ensemble_weights, ensemble_space, chosen)
        engines = search_engines(engine, where, _own(chosen), tell)
    translator = Translator(
        searched,
        model.tokenizer,
        decoding,
        engines=engines,
        too_long=too_long,
        seed=seed,
        banned=banned,
        scorers=search_engines("torch", where, _own(chosen)),
    )
    translator.check()
    return Opened(
        directory=model, translator=translator, place=str(where), precision=chosen, engine=engine
    )


def _open_stored(
    path: Path,
    precision: PrecisionChoice,
    engine: Engine,
    threads: int,
    seed: int,
    too_long: TooLong,
    banned: Sequence[str],
    tell: Callable[[str], None] | None,
    overrides: DecodingOverrides,
) -> Opened | None:
    """Opens a model directory on the CPU so that torch is imported if an engine needs it.

    Returns:
        None where that cannot be: in another precision, or without kernels.
    """
    if precision == "bfloat16" or not has_fast():
        return None
    engines = late_engines(engine, threads, tell)
    keep_freed_pages()
    directory, weights = read_model_directory(path, takes_int8=True)
    decoding = overridden(directory.decoding, tell, **overrides)
    chosen = choose_numbers(directory, precision, "cpu")

    def make() -> Transformer:
        _prepare_torch(threads, seed)
        return computing_in(directory, chosen, may_change=True).model

    weight_type: WeightType = "int8" if chosen == "int8" else "float32"
    late = replace(directory, load=make, weight_type=weight_type)
    translator = Translator(
        DirectoryModel(late, weights, in_integers=chosen == "int8"),
        directory.tokenizer,
        decoding,
        engines=engines,
        too_long=too_long,
        seed=seed,
        banned=banned,
        scorers=[LateTorchEngine()],
    )
    translator.check()
    return Opened(
        directory=late, translator=translator, place="cpu", precision=chosen, engine=engine
    )


def _prepare_torch(threads: int, seed: int) -> None:
    """Sets torch's threads, products and generator.

    Raises:
        UsageError: if threads would never answer in this process.
    """
    import torch

    from tformer_cli.runtime import prepare_cpu, set_threads

    try:
        set_threads(threads)
    except ValueError as error:
        raise UsageError(f"--threads: {error}") from None
    prepare_cpu()
    torch.manual_seed(seed)


def _resolved(device: str, threads: int, seed: int) -> str:
    """Asks torch which device a name is.

    Raises:
        UsageError: if it is not there.
    """
    _prepare_torch(threads, seed)
    from tformer_cli.runtime import resolve_device

    try:
        return str(resolve_device(device))
    except ValueError as error:
        raise UsageError(f"--device: {error}") from None


def _own(precision: PrecisionChoice) -> Precision:
    """The numbers that torch's products are computed in; int8 is a matter of the weights."""
    return "bfloat16" if precision == "bfloat16" else "float32"


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
