"""Text into batches of token ids, and back.

Read `lines` (files as lines of text), `config` (what a recipe may say), `corpora` with `columns`
and `hub` (every kind of corpus as sentence pairs), `pipelines`, `tokenizer`, `train_tokenizer` and
`labels` (text to ids and back), `word_cache`, `bpe_dropout`, `encoded` with `cache_key` and
`arrow_table` (a tokenized corpus in a memory-mapped file), `epochs` (what an epoch holds, in
windows of bounded size), `batching` (token-budget batches) and `loader` (an endless, resumable
stream of them). `grammar` makes the built-in corpus.
"""
