"""TLS, and the principals of client certificates."""
