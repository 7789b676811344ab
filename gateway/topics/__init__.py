"""Topics and their configs: what may be created, and what clients are told."""
