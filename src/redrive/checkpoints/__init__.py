"""Progress and recovery of the job: the exactly-once protocol and held messages."""
