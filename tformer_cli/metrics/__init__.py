"""Numbers that say how good a model is, without torch: BLEU, chrF, TER, labels, alignments.

Begin with `scores.py`; `significance.py` has intervals and paired tests.
"""
