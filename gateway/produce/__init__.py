"""Produce: from checked batches of many connections to stored, numbered, answered drafts."""
