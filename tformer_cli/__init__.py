"""tformer: train, use and understand translation Transformers from the command line."""

__version__ = "0.1.0"
