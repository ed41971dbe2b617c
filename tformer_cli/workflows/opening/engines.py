"""Search engines by their names; what only makes the search faster may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.decoding.search.torch_engine import TorchEngine
from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.decoding.config import Engine, PrecisionChoice
    from tformer_cli.decoding.engine import SearchEngine
    from tformer_cli.model.config import ModelConfig, Precision


def search_engines(
    name: Engine,
    device: torch.device | str,
    precision: Precision,
    tell: Callable[[str], None] | None = None,
    threads: int = 0,
) -> list[SearchEngine]:
    """Makes the engines that stand behind a value of `--engine`, the preferred ones first.

    Args:
        name: "tformer": the compiled kernels where they can, else torch; or one engine, which then
            searches or refuses. Not "ctranslate2", see `ctranslate2_engine`.
        device: where the model is.
        precision: "bfloat16" computes the products in it.
        tell: is told, in a line, what takes a while or makes the search slower.
        threads: CPU threads of the compiled kernels (0: as many as torch would use).
    """
    plain = TorchEngine(device, precision)
    if name == "torch":
        return [plain]
    if name != "tformer":
        require_fast(f"--engine {name}")
    if not has_fast():
        return [plain]
    from tformer_cli.fast.native_search import CompiledEngine

    compiled = CompiledEngine(precision, tell, threads)
    return [compiled] if name == "compiled" else [compiled, plain]


def tell_if_slower(config: ModelConfig, vocab_size: int, tell: Callable[[str], None]) -> None:
    """Tells why the compiled kernels cannot compute a model, which torch then searches with."""
    if not has_fast():
        return
    from tformer_cli.fast.native.weights import unsupported_shape

    reason = unsupported_shape(config, vocab_size, in_integers=False)
    if reason is not None:
        tell(f"searching by torch, which is slower than the compiled kernels: {reason}")


def ctranslate2_engine(
    directory: ModelDirectory, device: str, precision: PrecisionChoice, threads: int
) -> SearchEngine:
    """Loads a model's export into CTranslate2.

    Args:
        directory: the model directory.
        device: "cpu", "cuda" or "cuda:N".
        precision: what to compute in.
        threads: lines that are translated beside each other (0: as many as torch has threads).

    Raises:
        UsageError: if the engine is not installed or cannot load the export.
        ArtifactError: if there is no export of this model.
    """
    require_fast("--engine ctranslate2")
    from tformer_cli.artifacts.ctranslate2_export import EXPORT, check_export, import_ctranslate2
    from tformer_cli.fast.ctranslate2_engine import CTranslate2Engine
    from tformer_cli.fast.native_search import available_threads

    path = directory.path / EXPORT
    ctranslate2 = import_ctranslate2()
    check_export(directory.path, path)
    kind, _, index = device.partition(":")
    try:
        # Single-threaded workers beside each other: one with two threads is far slower in int8.
        engine = ctranslate2.Translator(
            str(path),
            device=kind,
            device_index=int(index or 0),
            compute_type=precision,
            inter_threads=threads or available_threads(),
            intra_threads=1,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"--engine ctranslate2: cannot load {path} ({reason}); export the model again"
        ) from None
    return CTranslate2Engine(engine, directory.tokenizer)
