"""From records and facts to what is to be written, without Spark and without Kafka's client."""
