"""Attention maps of a running model: naming attentions, tapping them, forced or live passes."""
