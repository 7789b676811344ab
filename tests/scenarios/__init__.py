"""Scenarios as transcripts that a person can read: commands and their outcome."""
