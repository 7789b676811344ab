"""A whole gateway in a world that one seed makes: the same seed is the same history, byte for byte."""
