"""Parts that stand on the core: each a folder with its commands; no plugin imports another."""
