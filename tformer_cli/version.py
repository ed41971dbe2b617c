"""The version, which hatchling reads too; apart from `tformer_cli`, which imports the workflows."""

__version__ = "0.1.0"
