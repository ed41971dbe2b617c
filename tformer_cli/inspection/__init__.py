"""Looking into the heads: which head attends where, proven to be what the model used.

Read `heads` (how a head is named), `capture` (the maps and their proof; `batched_capture` for many
pairs, `listening` beside the model), `metrics` (what a map is summed up in), `roles` (what a head
does, by its metrics),
`selectors` (the grammar of ``--heads``), `record` (one sentence, inspected), then any of the
renderings: `render_json`, `render_tensors`, `render_svg`, `render_png`, `render_html` (with the
page it fills, `page_source` and the parts in `page/`) and the colors they share, `palette`.
A page also shows how a search went, `search_tree`, from what `live_capture` heard of it.
`head_statistics` sums up heads over a corpus.

Word alignments: `words` (which tokens make a word), `alignment` (which words go together),
`symmetrization` (two directions joined).

One head step by step: `observed` (what the model computed), `trace` (the same by formulas), `step`
(how steps are told), `walkthrough` and `walkthrough_layer` (the telling), `tokens` (finding a
token), `quiz`, then `render_step_json` and `render_step_html`. `logits` and `positions` stand by
themselves, each with its renderings; pages without a script share `static_page`.

Beyond weights: `sublayers` (every attention taken apart by the tokens it reads), `value_norms`,
`alti`, `rollout` (layers multiplied), `weighting` (what a map's numbers may be), `weighted_maps`
(maps in those terms), and `flow`, what written tokens are made of, with `render_flow`.

All of it for a few sentences is a `report`, which `render_report` puts on the heads' page, with a
tab for each inspection.

What a head is worth is another road: `gates` (heads switched off), `ablation` (the loss without
each), `importance` (its gradient), `ablation_record` with `render_ablation`, and `pruning`, which
takes heads out of the weights.

Two models: `head_distance` (how far apart maps are), `assignment` (who is paired with whom),
`head_matching`, `head_diff` with `render_diff`. While a model is trained: `head_steps` (its heads
at a step), `head_timeline` (their roles over all steps) with `render_timeline`. Both sum metrics up
by `metric_means`.
"""
