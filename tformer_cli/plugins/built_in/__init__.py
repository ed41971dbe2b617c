"""Corpora that tformer makes: a grammar of two languages, ratings, strings and shapes; quickstart.

Begin with `make_corpus.py`, which names them; each writes the files of one corpus.
"""
