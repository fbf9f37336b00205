"""The demos: the whole job on sample messages, and a count of what became of each.

Demonstration one engine: environment, job, script, reconciliation, report
Script        what is put, and what an operator does meanwhile; three of them in ``scripts``
reconcile     every message by its number, against what lies on the broker
"""

from redrive.demo.demonstration import Demonstration
from redrive.demo.report import Report

__all__ = ["Demonstration", "Report"]
