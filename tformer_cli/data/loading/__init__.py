"""Tokenized corpora on disk and the batches that training reads from them.

Read `encoded` (a corpus tokenized once, cached in a memory-mapped `arrow_table`), `epochs` (which
pairs an epoch holds, in windows of bounded size), `batch_stream` (an endless, resumable stream of
batches) and its two kinds: `loader` (shuffled) and `segments` (rows that go on).
"""
