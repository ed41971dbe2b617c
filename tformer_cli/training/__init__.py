"""Training: batches in, weights out, and never a run lost.

Read `config` (what there is to choose), `loss`, `schedule`, `optimizer`, `averaging`, then `state`
(what a checkpoint holds), `checkpoints` (which are kept), `validation`, `events` (what a run tells
its observers), and last `trainer`, the loop that joins them.
"""
