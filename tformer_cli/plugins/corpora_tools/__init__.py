"""Tools for whole corpora: checking, cleaning, translating in shards, distilling."""
