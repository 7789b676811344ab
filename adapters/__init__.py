"""Backends: one file each, implementing a port of the ledger."""
