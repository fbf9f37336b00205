"""The demos of networks: puts to queue managers, channels that stand still, and every end.

The definitions of ``mq`` and ``mqe`` are those of the folder ``examples``: links lead there, and a
wheel holds what they lead to.

NETWORKS              the networks, by name
generate_puts         the puts of a demo from a seed
Predictor             where the library says that a message ends
reconcile_puts        every put by its number, against what lies on the broker
NetworkDemonstration  broker, topics, the job, and what happens to the network
"""

from redrive.demo.networks.demonstration import NETWORKS, NetworkDemonstration
from redrive.demo.networks.ends import End, EndKind
from redrive.demo.networks.prediction import Predictor
from redrive.demo.networks.puts import Act, Kind, Put, generate_puts
from redrive.demo.networks.reconciliation import PutReconciliation, reconcile_puts
from redrive.demo.networks.report import NetworkReport

__all__ = [
    "NETWORKS",
    "Act",
    "End",
    "EndKind",
    "Kind",
    "NetworkDemonstration",
    "NetworkReport",
    "Predictor",
    "Put",
    "PutReconciliation",
    "generate_puts",
    "reconcile_puts",
]
