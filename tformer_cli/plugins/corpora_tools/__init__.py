"""Tools for whole corpora: checking, cleaning, training on them, shards, distilling, comparing."""
