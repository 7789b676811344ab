"""Partitions: offsets, runs, and the producers that write to them."""
