"""One file per format: its `read` finds the segments and keeps all other bytes.

Start with `text.py`, the smallest; `known_formats.py` lists them all.
"""
