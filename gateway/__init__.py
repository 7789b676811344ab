"""Kafka on the wire: servers, handlers, and the services that decide requests."""
