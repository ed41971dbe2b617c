"""Why a model writes one word and not another: a decision, and what causes it.

`decision` has the decision itself, which is the same for all kinds of models, `probing` changes
parts of the model and measures it again, and `attribution` computes it from its parts.
"""
