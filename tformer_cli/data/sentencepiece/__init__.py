"""SentencePiece models and the tokenizers of foreign translation models that are built on them.

Kudo & Richardson 2018, "SentencePiece: A simple and language independent subword tokenizer". Read
in this order: `spm_file` (the file), `normalizer` (text before it is cut), `segmenter` (text to
pieces, by `merges` or a unigram model), `languages` (tokens that name a language), `tokenizer`.
"""
