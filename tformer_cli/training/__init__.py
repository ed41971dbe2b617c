"""Training: batches in, weights out, and never a run lost.

Read `config` (what there is to choose), `loss`, `window`, `gradients`, `optimizer`, `schedule`,
`limits`, `averaging`, then `state` (what a checkpoint holds), `checkpoints` (how they lie on the
disk), `saving` (which are written and kept), `validation`, `events` (what a run tells its
observers), `processes` (one, or several that train together: `launch`, `shares`, `messages`,
`distributed`), and last `trainer`, the loop that joins them.
"""
