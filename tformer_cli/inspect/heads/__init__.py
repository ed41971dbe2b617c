"""Heads summed up: metrics, roles, selection, statistics over a corpus, courses of a training."""
