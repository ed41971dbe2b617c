"""Looking into the heads: which head attends where, proven to be what the model used.

Begin with `capture.forced` (maps of a sentence pair with their proof) and `record` (one inspected
sentence); `view` says what a view is, `views` has one file each, and `data` turns records into JSON
by a line of names. `heads` has metrics; `weighting` goes beyond attention weights; `walkthrough`
works one head out; `ablation`, `alignment` and `comparison` are measures of heads; `pages` makes
the HTML page, whose parts lie in `page/`.
"""
