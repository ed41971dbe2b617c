"""Translation by compiled kernels: a whole batch, encoder to search, in one call without torch.

The C files in `kernels/` are compiled when they are first used and kept in the user's cache.
`compiler` finds what can compile, `library_cache` keeps the result safely, `library` joins both,
`self_test` compares a new library with torch. `weights` lays a model's weights out for the kernels
and says which models they do not know; `search` calls them.
"""
