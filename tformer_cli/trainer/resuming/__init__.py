"""What a run needs to resume: its state, checkpoints on the disk, and returns to them."""
