"""From source token ids to translations: search, and lines in, lines out.

Read in this order: `config` (what there is to choose), `hypothesis` (scores and lengths),
`search/` (the search itself, with torch), `engine` (what a search engine offers, and the choice
among several); then `source_batches`, `shortlist`, `splitting` (lines longer than the model takes),
`sentences`, `demands` (what is asked of a single line), `translator`, which joins them, and
`formats` (how translations are written).
"""
