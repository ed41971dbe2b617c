"""Training: batches in, weights out, and never a run lost.

Begin with `trainer`, the loop that joins all else, and `config`, what there is to choose. `loss`,
`gradients` and `optimizers` are a step; `resuming` is what a checkpoint holds, `validation` and
`judge` say which is best, `events` tell observers, `processes` train together.
"""
