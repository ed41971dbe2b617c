"""Curves of runs: what `metrics.jsonl` tells of one or several, over each other.

Read `metrics` (what can be drawn), `read` (a run's points), `chart` (which points go into which
panel), `scales` (axes with round ticks), `palette`, then any of the renderings: `render_svg`,
`render_png`, `render_text` (for terminals) and `render_tsv`. Nothing here needs torch.
"""
