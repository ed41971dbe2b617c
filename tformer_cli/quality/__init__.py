"""Quality of a corpus: checks of an example, repeats, and the commands that apply them.

Begin with `checks.py`, the table, and `content.py`, which makes the checks; `examine.py` holds a
corpus of any size in the same memory.
"""
