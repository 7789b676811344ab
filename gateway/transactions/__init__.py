"""Transactions: their coordinator, their expiry, and how they are described."""
