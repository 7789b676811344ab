"""Byte formats of what is stored: WAL frames, and later segments, their indexes and the settled ledger."""
