"""Hugging Face's Marian (OPUS-MT), M2M-100, NLLB and mBART, both ways.

`importing` makes a model of a directory, with the vocabularies that `tokenizers` reads; `exporting`
writes one, as `layout` names its parts, with a `model_card`.
"""
