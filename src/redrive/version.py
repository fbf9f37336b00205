"""The version of Redrive."""

__version__ = "0.1.0"
