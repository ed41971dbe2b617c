"""Inspections of single models: what heads, layers and positions do, and what decides a word."""
