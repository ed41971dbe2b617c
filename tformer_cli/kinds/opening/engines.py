"""Search engines by their names; what only makes the search faster may be missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.acceleration import has_fast, require_fast
from tformer_cli.search.engine import TorchEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from tformer_cli.model.config import ModelConfig, Precision
    from tformer_cli.search.config import Engine
    from tformer_cli.search.engine import SearchEngine


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
            searches or refuses.
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
