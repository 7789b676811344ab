"""The Kafka protocol without I/O: frames, connection rules, primitives, headers and messages."""
