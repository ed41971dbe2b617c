"""The training loop: batches in, weights out, and never a run lost. It knows no kind of model.

Begin with `trainer.py`, which joins all else, and `config.py`, the settings. `loss`, `gradients`,
and `optimizers` are a step; `resuming` is what a checkpoint holds, `processes` train together.
"""
