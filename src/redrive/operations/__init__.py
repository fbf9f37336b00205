"""What an operator does with a job and its queues, without a command line."""
