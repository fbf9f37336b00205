"""Answers for operators: where a job stands, and what became of a message; without Spark."""
