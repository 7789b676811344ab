"""Auditing: what a ledger says, compared with itself and with the bytes that are stored (sans-I/O)."""
