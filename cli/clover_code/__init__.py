"""The `clover-code` command: argument parsing and printing only."""

__version__ = "0.1.0"
