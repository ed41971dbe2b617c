"""The calls of a Python program; `tformer_cli` itself has the names of `functions.py`.

Begin with `model.py`, what `load` returns; `inspecting.py` has its views and `results.py` what all
methods return. `calls.py` has the words of errors and the locks, and the folder `alias` the name
that programs import, `tformer`.
"""
