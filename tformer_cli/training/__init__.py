"""Training: batches in, weights out, and never a run lost.

Read `config` (what there is to choose), `loss`, `projected_loss`, `window` (sums between reports),
`gradients`, `memory` (batches that do not fit), the folder `optimizers`, then `resuming` (what a
checkpoint holds, how it lies on the disk, which are written and kept), `validation`, `judge` (which
is best), `events` (for observers of the run; `run_logs` are two), `speed` (what it is compared
with, and how long it takes), `processes` (one, or several that train together), `trainer`, the loop
that joins them, and last `profiling`, which shows where its time goes.
"""
