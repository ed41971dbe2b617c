"""The shared core: the Transformer. It imports torch and nothing else.

Read in this order: `config` (what there is to choose, of `methods` that have a row each;
`weight_shapes` follow from it), `attention` with its masks, `similarity`, `positions`,
`feed_forward`, `embedding`, `recurrence`, then `stacks` of layers with the `cache` of a stack at
work, and `transformer`, which joins an encoder and a decoder and is the only module that reads
`config`: all below take widths, rates and parts one by one. `operations` has the products and the
dropout that layers compute with, and says what faster code may take over.

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
