"""Measures Dragoman and Apache Kafka on one machine; `python -m bench.run` runs it all."""
