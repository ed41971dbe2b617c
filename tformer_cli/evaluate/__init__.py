"""Evaluation of models and comparison of systems.

Begin with `evaluate.py`, one model on a test set, and `compare.py`, several systems on one.
"""
