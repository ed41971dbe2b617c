"""Evaluation of models and comparison of systems."""
