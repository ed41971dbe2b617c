"""Tokenized corpora on disk and the batches that training reads from them."""
