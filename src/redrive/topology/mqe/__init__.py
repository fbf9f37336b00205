"""MQ Everyplace networks: definitions, their YAML form, and the resolution of puts.

Which queue a put ends on is decided by the definitions of every queue manager it reaches:
``MqeResolver`` follows it. docs/resolution-mqe.md tells the procedure with examples.
"""

__all__ = ["message", "objects", "reader", "resolver", "results", "routes", "rules", "tables"]
