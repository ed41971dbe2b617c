"""Quality of a parallel corpus: checks of a pair, repeats, and the two passes that apply them.

Read `checks` (the registry), then its families `encoding`, `lengths`, `content`, `noise` and
`wrong_language`; then `keys`, `repeats` and `examine`, which hold a corpus of any size in the same
memory; `splitting` makes training, validation and test sets that share no sentence.
"""
