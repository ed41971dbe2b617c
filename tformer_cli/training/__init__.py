"""Training: batches in, weights out, and never a run lost.

Read `config` (what there is to choose), `loss`, `window`, `gradients`, `adam`, `muon`, `optimizer`,
`schedule`, `limits`, `averaging`, then `state` (what a checkpoint holds), `checkpoints` (how they
lie on the disk), `saving` (which are written and kept), `validation`, `events` (what a run tells
its observers; `tensorboard` is one), `hardware_limit` (what its speed is compared with),
`processes` (one, or several that train together: `launch`, `shares`, `messages`, `distributed`),
`trainer`, the loop that joins them, and last `profiling`, which shows where its time goes.
"""
