"""The same requests to Apache Kafka and to a gateway: responses must be the same, field by field."""
