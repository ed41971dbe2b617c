"""Compiled kernels: for translation a whole batch in one call, for training single operations.

The C files in `kernels/` are compiled when they are first used and kept in the user's cache.
`compiler` finds what can compile, `library_cache` keeps the result safely, `library` joins both,
`self_test` compares a new library with torch. `weights` lays a model's weights out for the kernels
and says which models they do not know; `search` calls them, for a whole batch, encoder to search,
without torch. `training` gives a model in training `dropout`, `attention` and `loss`, which compute
beside torch's products, by its `threads`, and the optimizer Muon `orthogonal`.
"""
