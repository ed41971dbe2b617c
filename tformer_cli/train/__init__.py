"""A run from a recipe: corpora, tokenizer, start, device, and the loop of `trainer`.

Begin with `train.py`; `plan.py` is the dry run. What differs between kinds comes from `kinds/`.
"""
