"""The search engine in torch, which knows every rule and every demand. Free of torch until used."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from tformer_cli.search.config import ANY_SEARCH
from tformer_cli.search.engine import DecodingModel, EngineUnavailableError, StoredModel
from tformer_cli.settings import ANY, dataclass, unknown_setting

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import torch

    from tformer_cli.model.config import Precision
    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import SearchedModel, Sentence
    from tformer_cli.search.torch_search import TorchSearch

KNOWN_DEMANDS: Mapping[str, Container[Any]] = MappingProxyType(
    dict.fromkeys(("tokens", "key", "prefix", "n_start", "constraints", "candidates", "heads"), ANY)
)
"""Demands on a sentence that it knows."""


@dataclass(frozen=True)
class TorchEngine:
    """Searches in padded batches, with every rule and every demand."""

    device: torch.device | str
    """Device of the model."""
    precision: Precision = "float32"
    """"bfloat16" computes the products in it."""
    name: ClassVar[str] = "torch"

    def supports(self, config: DecodingConfig, model: SearchedModel) -> str | None:
        """See `SearchEngine`."""
        unknown = unknown_setting(config, ANY_SEARCH)
        if unknown is not None:
            return f"the setting {unknown} is unknown"
        if isinstance(model, StoredModel):  # of a Transformer
            return None
        if not isinstance(model, DecodingModel):
            return "the model does not decode step by step"
        if config.coverage_penalty:
            # Not at the top: the module loads torch
            from tformer_cli.search.scoring import takes_targets

            if not takes_targets(model):
                return "the coverage penalty needs a single model"
        return None

    def takes(self, sentence: Sentence) -> str | None:
        """See `SearchEngine`."""
        return unknown_setting(sentence, KNOWN_DEMANDS)

    def prepare(self, model: SearchedModel) -> TorchSearch:
        """See `SearchEngine`; makes a stored model."""
        from tformer_cli.search.torch_search import TorchSearch

        in_torch = model.make() if isinstance(model, StoredModel) else model
        if not isinstance(in_torch, DecodingModel):
            raise EngineUnavailableError("the model does not decode step by step")
        return TorchSearch(in_torch, self.device, self.precision)
