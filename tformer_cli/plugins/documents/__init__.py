"""One file for each format: a function `read` that finds the segments and keeps all other bytes.

Begin with `text.py`, the smallest; `documents/known_formats.py` lists them.
"""
