"""Curves of runs: the values in `metrics.jsonl` of one or several, over each other.

Read `metrics` (what can be drawn), `read` (a run's points), `chart` (which points go into which
panel), `scales` (axes with round ticks), `palette`, then any of the renderings: `render_svg`,
`render_png`, `render_text` (for terminals, and a table). Nothing here needs torch.
"""
