"""Steps of a training that `tformer_cli.train.train` and its siblings share.

`data` (corpora and tokenizer of a recipe), `device` (device and precision), `plan` (a dry run),
`profile` (where the time of a step goes).
"""
