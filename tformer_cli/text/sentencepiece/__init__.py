"""SentencePiece models and the tokenizers of foreign translation models that are built on them."""
