"""Quality of a corpus: checks of an example, repeats, and the two passes that apply them.

Read `checks` (the registry) and `content` (the checks), then `repeats`, `minhash` and `examine`,
which hold a corpus of any size in the same memory.
"""
