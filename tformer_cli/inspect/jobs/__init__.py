"""Jobs of inspection, one for each command, and the steps that they share.

Begin with `heads.py`. `reader.py` reads a corpus for all of them; `follow_heads.py` records heads
during training.
"""
