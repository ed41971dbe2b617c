"""What recipes of tests have in common."""

TINY_MODEL = """\
[tokenizer]
vocab_size = 300
[model]
d_model = 16
n_heads = 2
d_ff = 32
n_encoder_layers = 1
n_decoder_layers = 1
"""
"""A vocabulary and the smallest model; more keys of the model may follow."""
