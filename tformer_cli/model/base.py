"""The base of all models: hidden states, and the rows that they are compared with."""

from torch import Tensor, nn

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import Operations

N_SPECIAL_TOKENS = 4
"""`<pad> <unk> <s> </s>`, the first ids of every vocabulary."""


class Model(nn.Module):
    """A network as training and its checkpoints know it.

    It turns sources and the beginnings of targets into hidden states; these, compared with the
    rows of `output_matrix`, give the logits of what comes next.
    """

    operations: Operations | None = None
    """Operations used in training, here and in the layers; None: torch's."""
    output_bias: nn.Parameter | None
    """(V) added to the logits, if there is one."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Takes the model's shape.

        Args:
            config: the model's shape.
            vocab_size: V, entries of the joint vocabulary, or only of the target's.
        """
        super().__init__()
        if vocab_size < 1:
            raise ValueError(f"vocab_size: must be at least 1, but is {vocab_size}")
        self.config = config
        self.vocab_size = vocab_size

    @property
    def max_positions(self) -> int:
        """Longest sentence in tokens, specials included, that the model reads or writes."""
        return self.config.longest_text

    @property
    def source_eos(self) -> bool:
        """True if source sentences end with `</s>`."""
        return self.config.ends_sources

    @property
    def first_target(self) -> int:
        """Id of the target that the first row of `output_matrix` stands for.

        Labels are numbered behind the special tokens, which no classifier predicts.
        """
        return N_SPECIAL_TOKENS if self.config.n_outputs else 0

    @property
    def output_matrix(self) -> Tensor:
        """(V, D) rows that hidden states are compared with to give logits."""
        raise NotImplementedError

    def target_hidden(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes the hidden states that targets are predicted from.

        Args:
            source: (B, S) token ids.
            source_mask: (B, S) True where a position is a token and not padding.
            target_input: (B, T) token ids, the sentence's start first.

        Returns:
            (B, T, D) hidden states; position i is the one that predicts token i + 1.
        """
        raise NotImplementedError
