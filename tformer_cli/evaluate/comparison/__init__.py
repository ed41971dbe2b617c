"""Comparing several systems on a test set: scores with tests, and where the systems differ.

In reading order: `measured` (sentences' statistics, extracted once), `paired_tests` (sacreBLEU's),
`buckets` and `words` (by length and by word frequency), `compare` (all of it for one test set),
`report` (the document to show).
"""
