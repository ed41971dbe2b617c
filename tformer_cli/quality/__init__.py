"""Quality of a corpus: checks of an example, repeats, and the commands that apply them.

Begin with `checks`, one function a check; `examine` holds a corpus of any size in the same memory;
`given` names corpora, and `check_data`, `clean_data` and `split_data` are the commands' work.
"""
