"""Kafka on the wire: servers, handlers, and the rooms where requests are decided."""
