"""Quality of parallel corpora: check them, clean them, split them.

Read `given` first: corpora that a user names; then `check_data`, `clean_data` and `split_data`.
"""
