"""From source token ids to translations: search, and lines in, lines out.

Read in this order: `config` (what there is to choose), `hypothesis`, `length_penalty`, `limits`,
`greedy` (the short search, which beam search with one slot must equal), `beam_search`; then
`source_batches`, `splitting` (lines longer than the model takes), `translator`, which joins them,
and `formats` (how translations are written).
"""
