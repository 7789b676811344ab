"""Journals: the append-only metadata log of a shard."""
