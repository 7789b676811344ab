"""Measures Dragoman beside Apache Kafka on one machine; `python -m bench.run` runs it all."""
