"""Translating whole corpora by several processes, of this machine or of a cluster.

Read `shards` (the unit of work), `line_files` and `tables` (sources in shards, and a shard's rows),
`translate_shard` (one shard), `processes` and `cluster` (the workers), `translate_corpus`.
"""
