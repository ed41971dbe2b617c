"""Jobs on lines, one for each verb: translate, classify, embed, fill, generate, score.

Begin with `job.py`, on which they are based; `kinds/opening.py` opens the model. Nothing here
prints.
"""
