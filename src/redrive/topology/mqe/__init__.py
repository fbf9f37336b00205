"""MQ Everyplace networks: definitions, their YAML form, and puts (docs/resolution-mqe.md)."""

__all__ = ["objects", "reader", "resolver", "results"]
