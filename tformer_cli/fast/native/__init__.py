"""Compiled kernels: for translation a whole batch in one call, for training single operations.

`build` compiles the C files in `kernels/` when the package is installed
(`tformer_cli/build_hook.py`) or in place (`python -m tformer_cli.fast.native.build`), once for each
of the `levels` of processors, into `libraries/`. `library` loads the one that fits this processor,
and none whose sources or `structs` are other than those at hand. `weights` lays a model's weights
out for the kernels and says which models they do not know; `search` calls them, for a whole batch
to search or to score, or step by step. Neither needs torch, whose models `torch_weights` hands
over. `training` gives a model in training and Muon `attention`, `linear` and the other
`operations`, which compute between torch's products, by its `threads`.
"""
