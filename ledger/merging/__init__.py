"""Merging: which runs of a partition become segments, what is read for that, and what the segments hold."""
