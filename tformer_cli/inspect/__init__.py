"""Looking into the heads: which head attends where, proven to be what the model used.

Begin with `capture.heads` (names of heads), `capture.forced` (maps of a sentence pair with their
proof) and `record` (one inspected sentence); `view` says what a view is, and `views` has one file
each. `heads` has metrics, roles and the grammar of ``--heads``; `weighting` goes beyond attention
weights; `walkthrough` works one head out; `ablation`, `alignment` and `comparison` are measures of
heads; `figures` and `pages` draw SVG and the HTML page, whose parts lie in `page/`.
"""
