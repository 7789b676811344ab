"""Scenarios as transcripts that a person can read: what was done, and what came of it."""
