"""Settled ledgers: which one of a partition the journal names, and how a reader finds an offset in it."""
