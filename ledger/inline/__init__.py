"""Batches inside of journal entries: which runs are there, and how they get into objects."""
