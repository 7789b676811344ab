"""Metadata stores: small versioned maps with compare-and-set."""
