"""Processes that train together, or a single one.

Read `launch` (a process's place), `group` (what the training loop calls), `distributed` (several),
`data_parallel` (shares of a step and the sum of gradients), `agent` (which starts and restarts
processes) and `signals`.
"""
