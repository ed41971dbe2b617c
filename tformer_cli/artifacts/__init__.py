"""Artifacts on disk: model directories, run directories and their checkpoints.

Read `atomic` (write aside, flush, rename), then `tensors` (strict safetensors), `model_directory`
(what users translate with), `checkpoint` (what training resumes from). Nothing is ever unpickled,
and a damaged, foreign or hostile directory is an error of one line.
"""
