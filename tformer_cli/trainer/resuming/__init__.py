"""Resumption of a run: its state, checkpoints on the disk, and returns to them."""
