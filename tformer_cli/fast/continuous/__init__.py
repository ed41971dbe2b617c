"""Continuous batching: a search whose slots are refilled as sentences end.

Experimental: tested on a CPU and on a simulated device, never run on a GPU.
"""
