"""Comparing several systems on a test set: scores with tests, and where the systems differ.

Begin with `paired_tests` (sacreBLEU's, on statistics extracted once), then `compare` (all of it for
one test set), `labels` (the same of classifiers) and `report` (the document to show).
"""
