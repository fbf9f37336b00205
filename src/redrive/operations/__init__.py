"""What an operator does with a job and its queues, without a command line.

Whatever asks a cluster here raises ``TransientFault`` if it gives no answer in time, and
``EnvironmentFault`` if it can't be reached, or if there is a ledger that can't be read; docstrings
name further errors only.
"""
