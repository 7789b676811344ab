"""The same requests to Apache Kafka and to a gateway: answers must be the same, field by field."""
