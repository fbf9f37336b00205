"""Instances that share the partitions out on three brokers, any of which dies.

As ``benchmarks.instances``, but that a broker or the coordinator of the instances' group is killed
with -9, or all brokers are restarted one after the other.

    python -m benchmarks.instances_cluster [--minutes 10] [--every 20] [--rate 500]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.engine import main
from benchmarks.instances import Instances


@dataclass(kw_only=True)
class InstancesOfCluster(Instances):
    """Several processes of one job, and three brokers."""

    brokers = 3
    broker_faults = ("kill broker", "kill coordinator", "rolling restart")


if __name__ == "__main__":
    sys.exit(main(InstancesOfCluster, __doc__))
