"""Transactions: coordinator, offsets that are committed with them, expiry, and how they are described."""
