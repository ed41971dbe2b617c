"""The version, which hatchling reads too; apart from `tformer_cli`, which imports the features."""

__version__ = "1.0.0"
