"""The inspection workflows, one a command, and the steps that they share.

`heads`, `views`, `report`, `diff`, `ablate` and `align` are whole jobs. `inspection_model` and
`open_checkpoint` open a model, `corpus_pairs` and `corpus` read a corpus, `follow_heads` records
heads during training, `aligner` and `score_alignment` align words, `dump_heads` and `write_pruned`
write results.
"""
