"""Jobs of inspection, one for each command, and the steps that they share.

`reader` opens a model and reads a corpus; begin there. `heads`, `report`, `diff`, `ablate`, `align`
and `dump_heads` are whole jobs, and `follow_heads` records heads during training.
"""
