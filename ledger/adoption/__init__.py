"""Adoption: segments of KafScale's buckets become runs of topics, and stay where they are."""
