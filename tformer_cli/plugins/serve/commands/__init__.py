"""The command of the service."""
