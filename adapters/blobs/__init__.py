"""Blobs: immutable named bytes."""
