"""Optimizers: Adam, Muon, the learning rate, and averages of the weights."""
