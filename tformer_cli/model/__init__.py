"""The shared core: the encoder-decoder Transformer. It imports torch and nothing else.

Read in this order: `config` (what there is to choose), `attention`, `feed_forward`, `embedding`,
`positions`, `masks`, `cache`, then the stacks `encoder` and `decoder`, and `transformer`, which
joins them. `shapes` makes models without values; `runtime` says what the machine offers: device,
precision, threads; `flops` counts what a model computes, `hardware` measures how fast the machine
could.

Shapes are written with these letters throughout:

=====  ==========================================================
B      sentences of a batch
S      source positions
T      target positions
Q, K   query and key positions (each S or T)
D      model width, `d_model`
H      heads
E      width of a head; D = H·E where no head was pruned
F      width of the feed-forward layer, `d_ff`
V      vocabulary
W      beam
=====  ==========================================================

Tensors are batch first; heads are (B, H, Q, E). In a boolean mask True means "may attend", as in
`torch.nn.functional.scaled_dot_product_attention`.
"""
