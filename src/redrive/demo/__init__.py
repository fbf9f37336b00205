"""The demos: the whole job on sample dead letters, and a check of where each one ended.

Demonstration     one engine: environment, job, script, reconciliation, report
MqDeadLetters     the dead letters of IBM MQ
KafkaDeadLetters  those of Kafka's own programs
"""

from redrive.demo.demonstration import Demonstration
from redrive.demo.kafka import KafkaDeadLetters
from redrive.demo.mq import MqDeadLetters

__all__ = ["Demonstration", "KafkaDeadLetters", "MqDeadLetters"]
