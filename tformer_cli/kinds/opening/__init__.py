"""Opening a model directory or a foreign model, for every kind.

Begin with `translator.py`, which joins the steps.
"""
