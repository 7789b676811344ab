"""Consumer groups: the coordinator, a pure machine for each group, and committed offsets."""
