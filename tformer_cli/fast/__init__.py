"""Everything that only makes tformer faster; `model` and `search` define the results.

`native` has the kernels written in C, for training and for a whole search; `native_search` is the
search engine that calls them, `unpadded` lays out what they train on. `products` and
`quantized` are products of matrices that a model's `Linear` layers may be given.

Nothing here computes anything that the plain code does not: each part is tested against it.
"""
