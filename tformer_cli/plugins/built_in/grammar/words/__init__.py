"""The words of the built-in corpus and their forms.

Read the tables `nouns`, `verbs`, `adjectives` and `other`, then `morphology_english` and
`morphology_french` (how forms are made), `entries` (words with both) and `lexicon` (all of them,
in pools to draw from).
"""
