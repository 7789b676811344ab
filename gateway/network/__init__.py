"""Sockets: listening, connections and their limits, the order of requests, memory, TLS writes."""
