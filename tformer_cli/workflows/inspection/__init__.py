"""Steps that the inspection workflows beside this folder share.

`inspection_model` and `open_checkpoint` open a model, `corpus_pairs` and `inspect_corpus` read a
corpus, `follow_heads` records heads during training, `aligner` and `score_alignment` align words,
`dump_heads` and `write_pruned` write results.
"""
