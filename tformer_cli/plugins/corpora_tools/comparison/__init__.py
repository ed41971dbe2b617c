"""Comparing several systems on a test set: scores with tests, and where the systems differ."""
