"""Masked language models: a text with gaps in, tokens that may fill them out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.kinds.embed import Embed
from tformer_cli.kinds.kind import Examples, LineComputation
from tformer_cli.kinds.texts import TextModeling, text_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import torch

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.kind import HeldOut, PlacePredictor
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.model.encoder_only import MaskedLanguageModel
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.batching import Batch, Divide, Indices
    from tformer_cli.text.masking import Masking
    from tformer_cli.text.tokenizer import Tokenizer
    from tformer_cli.trainer.validation import Scored, Scorer

_TOKENS_PER_BATCH = 4096
_SEED = 0
"""Seed of the masks: a text's masks do not depend on other texts."""


class MaskedModeling(TextModeling):
    """Hidden tokens of texts, by an encoder with a row for each token."""

    examples = Examples("text", "text", "prediction", "original", has_two_sides=False)
    head = "tokens"

    def make_tokenizer(self, recipe: Recipe, make: Callable[[], Tokenizer]) -> Tokenizer:  # noqa: ARG002
        """Adds a token for gaps."""
        from tformer_cli.text.joint_tokenizer import JointTokenizer

        tokenizer = make()
        return tokenizer.with_mask() if isinstance(tokenizer, JointTokenizer) else tokenizer

    def masking(self, tokenizer: Tokenizer) -> Masking:
        from tformer_cli.text.masking import masking_of

        return masking_of(tokenizer)

    def scorer(self, held: HeldOut) -> Scorer:
        """Returns a function that scores a model on the same tokens every time."""
        import torch

        from tformer_cli.text.masking import masking_of
        from tformer_cli.text.tokenizer import PAD_ID
        from tformer_cli.trainer.validation import Scored

        recipe, tokenizer, device = held.recipe, held.tokenizer, held.device
        ids = text_ids(
            [pair.target for pair in held.pairs],
            tokenizer,
            recipe.data.max_length,
            is_stream=recipe.data.text == "stream",
        )
        masking, side = masking_of(tokenizer), tokenizer.source

        def score(
            model: Any,  # noqa: ANN401 - a MaskedLanguageModel
            sample: int,
            before_batch: Callable[[], None],
            divide: Divide,
        ) -> Scored:
            scores = masked_scores(model, ids, masking, device, before_batch, divide)
            number = sample % len(ids)
            batch = hidden_alike([ids[number]], [number], masking)
            logits = model(batch.source.to(device), batch.source_mask.to(device))
            best = logits[0].float().argmax(dim=1).cpu()
            filled = torch.where(batch.target_output[0] != PAD_ID, best, batch.source[0])
            hidden = " ".join(side.pieces(batch.source[0, :-1].tolist()))
            return Scored(
                scores={
                    "loss": scores.loss,
                    "perplexity": scores.perplexity,
                    "accuracy": scores.accuracy,
                },
                # Without `</s>`, which texts to be read do not show
                sample=(hidden, side.decode(filled[:-1].tolist()), side.decode(ids[number])),
            )

        return score


class MaskedScores(NamedTuple):
    """Scores of hidden tokens."""

    loss: float
    accuracy: float
    """Share of the tokens that are the most probable ones, in percent."""
    n_tokens: int

    @property
    def perplexity(self) -> float:
        from tformer_cli.trainer.validation import perplexity

        return perplexity(self.loss)


def masked_scores(
    model: MaskedLanguageModel,
    texts: Sequence[Sequence[int]],
    masking: Masking,
    device: torch.device,
    before_batch: Callable[[], None],
    divide: Divide,
) -> MaskedScores:
    """Predicts hidden tokens of texts (ids without `</s>`), the same ones whenever it is called."""
    import numpy as np
    import torch

    from tformer_cli.text.batching import plan_batches
    from tformer_cli.text.tokenizer import PAD_ID

    lengths = np.array([len(ids) for ids in texts], np.int32)
    plan = plan_batches(lengths, lengths, _TOKENS_PER_BATCH, seed=0, epoch=0)  # always the same

    def compute(indices: Indices) -> tuple[float, int, int]:
        before_batch()
        batch = hidden_alike([texts[i] for i in indices], indices.tolist(), masking)
        hidden = model.encode(batch.source.to(device), batch.source_mask.to(device))
        is_target = (batch.target_output != PAD_ID).to(device)
        targets = batch.target_output.to(device)[is_target]
        # Only hidden tokens: a row of the vocabulary for each of the others would be in vain
        logits = model.project(model.transform_hidden(hidden[is_target])).float()
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        return loss, int((logits.argmax(dim=1) == targets).sum()), len(targets)

    sums = divide(plan, lambda batches: list(map(compute, batches)))
    losses, right, counts = zip(*sums, strict=True) if sums else ((), (), ())
    n_tokens = sum(counts)
    share = 100.0 * sum(right) / max(1, n_tokens)
    return MaskedScores(math.fsum(losses) / max(1, n_tokens), share, n_tokens)


def hidden_alike(texts: list[Sequence[int]], numbers: list[int], masking: Masking) -> Batch:
    """Masks each text by a generator that its number seeds."""
    import numpy as np
    import torch

    from tformer_cli.text.batching import Batch
    from tformer_cli.text.tokenizer import PAD_ID

    parts = [
        # So a text hides the same tokens, whatever is in its batch
        masking.batch([text], np.random.default_rng([_SEED, number]))
        for text, number in zip(texts, numbers, strict=True)
    ]
    source, target = (
        torch.nn.utils.rnn.pad_sequence([side[0] for side in sides], batch_first=True)
        for sides in ([text.source for text in parts], [text.target_output for text in parts])
    )
    return Batch(
        source=source, source_mask=source != PAD_ID, target_input=source, target_output=target
    )


class Masked(Embed):
    """An encoder with a row for each token."""

    name = "masked"
    verbs = ("fill", "embed", "score")
    measured_by = "gaps"
    training = MaskedModeling()

    def predictor(self, opened: Opened) -> PlacePredictor:
        from tformer_cli.kinds.lines.fill import GapFiller

        return GapFiller(opened)

    def line_computation(self, opened: Opened, verb: Verb) -> LineComputation:
        if verb != "fill":
            return super().line_computation(opened, verb)
        from tformer_cli.kinds.lines.fill import GapFiller

        return LineComputation(GapFiller(opened).fill, {"top": int})


KIND = Masked()
