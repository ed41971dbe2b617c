"""Training: batches in, weights out, and never a run lost.

Read `config` (what there is to choose), `loss`, `projected_loss`, `window` (sums between reports),
`gradients`, `memory` (batches that do not fit), `adam`, `muon`, `optimizer`, `schedule`, then
`state` (what a checkpoint holds), `checkpoints` (how they lie on the disk), `saving` (which are
written and kept), `validation`, `judge` (which is best), `events` (for observers of the run;
`run_logs` are two), `speed` (what it is compared with, and how long it takes), `processes` (one, or
several that train together: `launch`, `agent`, `distributed`, `data_parallel`), `trainer`, the loop
that joins them, and last `profiling`, which shows where its time goes.
"""
