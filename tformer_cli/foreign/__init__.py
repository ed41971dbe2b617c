"""Models of other tools, made into model directories, and back.

Read `formats` (containers of named arrays, opened without executing anything), `foreign_model` and
`assembly` first. A model family is a file or folder: its table of names, what of its settings is
known, and its tokenizer. The export to CTranslate2, which its engine needs, is in `artifacts`.
"""
