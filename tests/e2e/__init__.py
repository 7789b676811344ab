"""Real clients against a real gateway; with DRAGOMAN_TEST_TARGET=kafka against Apache Kafka instead."""
