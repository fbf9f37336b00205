"""The only importer of Kafka's clients: connections, questions, consumers, producers."""
