"""Tokenized corpora on disk and the batches that training reads from them.

Read `encoded` (a corpus tokenized once), then `loader` (an endless, resumable stream of batches).
"""
