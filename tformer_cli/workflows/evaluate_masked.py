"""Evaluating a masked language model: hidden tokens of texts, the same whenever they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tformer_cli.data.lines import given_lines
from tformer_cli.data.masking import masking_of
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.workflows.training.language_modeling import text_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tformer_cli.training.masked_validation import MaskedScores
    from tformer_cli.workflows.evaluate_texts import TextKind
    from tformer_cli.workflows.opening.encoder import OpenedEncoder


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """Scores of hidden tokens, and how they were hidden."""

    scores: MaskedScores
    kind: TextKind
    """Texts that were read: each line, or blocks of all of them as one."""
    longest: int
    """Tokens of a text that were read at most."""
    share: float
    """Share of the tokens that was chosen."""

    @property
    def signature(self) -> str:
        """Says how the scores were computed."""
        return f"text:{self.kind}|window:{self.longest}|masked:{self.share:g}|draw:by text"


def evaluate_masked(
    opened: OpenedEncoder, lines: Iterable[str], kind: TextKind = "lines"
) -> MaskedEvaluation:
    """Scores how a model predicts hidden tokens."""
    import torch

    from tformer_cli.runtime import autocast
    from tformer_cli.training.masked_validation import masked_scores

    directory = opened.directory
    try:
        masking = masking_of(directory.tokenizer)
    except DataError as error:
        raise ArtifactError(f"{directory.path}: {error}") from None
    texts = text_ids(
        list(given_lines(lines)), directory.tokenizer, opened.longest, is_stream=kind == "stream"
    )
    if not texts:
        raise DataError("--text: has nothing to predict; give a text")
    device = torch.device(opened.place)
    with torch.inference_mode(), autocast(device, opened.precision):
        scores = masked_scores(directory.masked_model, texts, masking, device)
    return MaskedEvaluation(scores=scores, kind=kind, longest=opened.longest, share=masking.share)
