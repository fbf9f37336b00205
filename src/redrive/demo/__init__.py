"""The demos: the whole job on sample messages, and a check of where each one ended.

Demonstration  one engine: environment, job, script, reconciliation, report
Script         the messages, and what an operator does while the job runs; see ``scripts``
reconcile      every message by its number, against the records on the broker
"""

from redrive.demo.demonstration import Demonstration

__all__ = ["Demonstration", "script", "scripts"]
