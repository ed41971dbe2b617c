"""Jobs on lines, one for each verb: translate, classify, embed, fill, generate, score.

Begin with `job.py`, which all of them stand on; `kinds/opening.py` opens the model. Nothing here
prints.
"""
