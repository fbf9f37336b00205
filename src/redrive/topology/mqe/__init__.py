"""MQ Everyplace networks: definitions, their YAML form, and the resolution of puts.

A put ends on a queue by the definitions of every queue manager it reaches: ``MqeResolver`` follows
it. docs/resolution-mqe.md describes the procedure with examples.
"""

__all__ = ["objects", "reader", "resolver", "results"]
