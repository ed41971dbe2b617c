"""Floating-point operations of a Transformer, in closed form. Free of torch."""

from tformer_cli.model.config import ModelConfig


def forward_flops(
    config: ModelConfig, vocab_size: int, source_length: float, target_length: float
) -> float:
    """Counts the floating-point operations of the products for one sentence pair.

    A product of (m, k) by (k, n) is 2·m·k·n operations. With S source and T target positions, an
    encoder layer has S·(8·D² + 4·D·F) in its matrices and 4·S²·D in attention (Q·Kᵀ and the sum
    over V). A decoder layer has T·(12·D² + 4·D·F) for the target, S·4·D² for the keys and values of
    the memory, 4·T²·D and 4·T·S·D in attention; with SSRU in place of self-attention 4·T·D² less
    in matrices and no 4·T²·D; the output projection has T·2·D·V. Source: the
    sub-layers of Vaswani et al. 2017, section 3, counted as Kaplan et al. 2020, "Scaling Laws for
    Neural Language Models", section 2.1 and table 1, count a decoder-only model. Norms, softmax
    and other work on single values are omitted; masked cells count, since they are computed.

    Args:
        config: the model's shape.
        vocab_size: V.
        source_length: S, specials included.
        target_length: T, likewise.
    """
    d, f, s, t = config.d_model, config.d_ff, source_length, target_length
    encoder = s * (8 * d * d + 4 * d * f) + 4 * s * s * d
    decoder = t * (12 * d * d + 4 * d * f) + s * 4 * d * d + 4 * t * (t + s) * d
    if config.decoder_cell == "ssru":
        decoder -= t * 4 * d * d + 4 * t * t * d
    output = t * 2 * d * vocab_size
    return config.n_encoder_layers * encoder + config.n_decoder_layers * decoder + output


def training_flops_per_token(
    config: ModelConfig, vocab_size: int, source_length: float, target_length: float
) -> float:
    """Counts the operations of a training step per target token: three times the forward pass.

    The backward pass has two products, one for the gradient of the weights and one for that of
    the inputs, where the forward pass has one (Kaplan et al. 2020, section 2.1).

    Args:
        config: the model's shape.
        vocab_size: V.
        source_length: mean tokens of a source sentence, specials included.
        target_length: mean tokens of a target sentence, likewise; above 0.
    """
    flops = forward_flops(config, vocab_size, source_length, target_length)
    return 3.0 * flops / target_length
