"""Models of other tools, made into model directories.

Read `formats` (containers of named arrays, opened without executing anything) first. A model family
is a file: its table of names, what of its settings is known, and its tokenizer.
"""
