"""Produce: from batches of many connections to stored and committed drafts."""
