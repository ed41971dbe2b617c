"""Looking into the heads: which head attends where, proven to be what the model used.

- `capture`: how a head is named (`heads`), the attention maps of a sentence pair with their proof
  (`forced`), of many pairs (`batches`), of a search (`live`, `search_tree`), and everything else
  that the model computed on the way (`observed`).
- `heads`: numbers of a map (`metrics`), a head's role by them (`roles`), the grammar of ``--heads``
  (`selectors`), sums over a corpus (`statistics`) and over a training (`steps`, `timeline`).
- `alignment`: word alignments by cross-attention.
- `weighting`: attention taken apart by tokens, norm-based maps, attention rollout, ALTI+.
- `walkthrough`: one head for one token, in steps.
- `ablation`: heads switched off, their gradients, heads taken out of the weights.
- `comparison`: the heads of two models, paired.
- `record`: one inspected sentence, the input of every view.
- `view` and `views`: what an inspection reads, its JSON, its terminal text and its tab of the page;
  one file each.
- `figures` and `page`: heat maps as SVG and on a terminal; the HTML page. `json_lines`: JSON.
"""
