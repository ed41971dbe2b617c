"""Jobs on lines, one for each verb: translate, classify, embed, fill, generate, score.

Each opens a model with `kinds/opening`, reads lines, and yields a result for each. Nothing here
prints.
"""
