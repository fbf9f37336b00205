"""The demo: the whole job on sample dead letters, and a count of what became of each.

generate      sample dead letters from a seed, with what is known about each
Walk          what has to become of them: a naive reading of the rules table
Demonstration broker, dead letters, a slow consumer, a late queue, the job, a live view
reconcile     every sample by its number, against what lies on the broker
"""

from redrive.demo.demonstration import Demonstration
from redrive.demo.expectation import Outcome, Walk
from redrive.demo.punctuality import Punctuality
from redrive.demo.reconciliation import Found, Observation, Reconciliation, reconcile
from redrive.demo.report import Report
from redrive.demo.samples import Kind, Record, Sample, generate
from redrive.demo.scenario import Scenario

__all__ = [
    "Demonstration",
    "Found",
    "Kind",
    "Observation",
    "Outcome",
    "Punctuality",
    "Reconciliation",
    "Record",
    "Report",
    "Sample",
    "Scenario",
    "Walk",
    "generate",
    "reconcile",
]
