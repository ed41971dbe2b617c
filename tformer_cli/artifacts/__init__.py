"""Artifacts on disk: model directories, run directories and their checkpoints.

Read `tensors` (strict safetensors), then `model_directory` (what users translate with). Files are
written by `tformer_cli.files.atomic`, checkpoints by `tformer_cli.trainer.resuming.checkpoints`.
Nothing is ever unpickled, and a damaged, foreign or hostile directory is an error of one line.
"""
