"""Real clients against a real gateway; with DRAGOMAN_E2E_TARGET=kafka against Apache Kafka instead."""
