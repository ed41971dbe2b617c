"""Commands for whole corpora."""
