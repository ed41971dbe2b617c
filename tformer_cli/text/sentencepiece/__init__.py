"""SentencePiece models and the tokenizers of foreign translation models that are built on them.

Read `spm_file` (the file, checked, and the library that cuts text by it), then `tokenizer`.
"""
