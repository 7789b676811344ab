"""Stored objects: which hold live runs, which are garbage, and the orphan floor."""
