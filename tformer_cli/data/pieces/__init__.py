"""Tokenizers of foreign models whose texts come in words or pieces, with spaces between them.

Read `subword_nmt` (words cut by a list of merges), then `tokenizer`.
"""
