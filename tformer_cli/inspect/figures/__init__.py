"""Figures of heads as SVG and PNG."""
