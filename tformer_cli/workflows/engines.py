"""The search engines there are, by their names; what only makes it faster may be missing."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.decoding.engine import StoredModel
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from tformer_cli.data.tokenizer import Tokenizer
    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.decoding.engine import PreparedSearch, SearchedModel, SearchEngine, Sentence
    from tformer_cli.decoding.torch_engine import TorchEngine
    from tformer_cli.model.config import Precision
    from tformer_cli.workflows.translation_options import Engine, PrecisionChoice


def search_engines(
    name: Engine,
    device: torch.device,
    precision: Precision,
    tell: Callable[[str], None] | None = None,
) -> list[SearchEngine]:
    """Makes the engines that stand behind a value of `--engine`, the preferred ones first.

    Args:
        name: "tformer": the compiled kernels where they can, else torch; or one engine, which then
            searches or refuses.
        device: where the model is.
        precision: "bfloat16" computes the products in it.
        tell: is told, in a line, what takes a while or makes the search slower.
    """
    from tformer_cli.decoding.torch_engine import TorchEngine

    plain = TorchEngine(device, precision)
    if name == "torch":
        return [plain]
    if name != "tformer":
        require_fast(f"--engine {name}")
    if name == "continuous":
        from tformer_cli.fast.continuous.continuous_search import ContinuousEngine

        return [ContinuousEngine(device, precision)]
    if not has_fast():
        return [plain]
    from tformer_cli.fast.native_search import CompiledEngine

    compiled = CompiledEngine(precision, tell)
    return [compiled] if name == "compiled" else [compiled, plain]


class LateTorchEngine:
    """The engine in torch for a `StoredModel`: torch is imported when it is to search."""

    name: ClassVar[str] = "torch"

    @cached_property
    def _engine(self) -> TorchEngine:
        import torch

        from tformer_cli.decoding.torch_engine import TorchEngine

        return TorchEngine(torch.device("cpu"))

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:
        """See `SearchEngine`."""
        return self._engine.supports(config, _made(model))

    def takes(self, sentence: Sentence) -> str | None:
        """See `SearchEngine`."""
        return self._engine.takes(sentence)

    def prepare(self, model: SearchedModel) -> PreparedSearch:
        """See `SearchEngine`; makes the model."""
        return self._engine.prepare(_made(model))


def _made(model: SearchedModel) -> SearchedModel:
    return model.make() if isinstance(model, StoredModel) else model


def late_engines(
    name: Engine, threads: int, tell: Callable[[str], None] | None = None
) -> list[SearchEngine]:
    """Makes the engines of a `StoredModel`; see `search_engines`.

    Args:
        name: "tformer" or "compiled".
        threads: CPU threads (0: as many as torch would use).
        tell: is told, in a line, what takes a while or makes the search slower.
    """
    from tformer_cli.fast.native_search import CompiledEngine

    compiled = CompiledEngine(tell=tell, n_threads=threads)
    return [compiled] if name == "compiled" else [compiled, LateTorchEngine()]


def ctranslate2_engine(
    model: Path,
    tokenizer: Tokenizer,
    device: torch.device,
    precision: PrecisionChoice,
    n_threads: int,
) -> SearchEngine:
    """Loads a model's export into CTranslate2.

    Args:
        model: the model directory.
        tokenizer: its tokenizer.
        device: where to compute.
        precision: what in.
        n_threads: lines that are translated beside each other.

    Raises:
        UsageError: if the engine is not installed or cannot load the export.
        ArtifactError: if there is no export of these weights.
    """
    require_fast("--engine ctranslate2")
    from tformer_cli.artifacts.ctranslate2_export import EXPORT, check_export, import_ctranslate2
    from tformer_cli.fast.ctranslate2_engine import CTranslate2Engine

    path = model / EXPORT
    ctranslate2 = import_ctranslate2()
    check_export(model, path)
    try:
        # Single-threaded workers beside each other: one with two threads is far slower in int8.
        engine = ctranslate2.Translator(
            str(path),
            device=device.type,
            device_index=device.index or 0,
            compute_type=precision,
            inter_threads=n_threads,
            intra_threads=1,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"--engine ctranslate2: cannot load {path} ({reason}); export the model again"
        ) from None
    return CTranslate2Engine(engine, tokenizer)
