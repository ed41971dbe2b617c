"""Heads of two models paired and compared."""
