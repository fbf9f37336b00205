"""Kafka's clients, which nothing else imports: connections, questions, consumers, producers."""
