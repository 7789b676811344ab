"""Segment stores: record batches as opaque bytes, written once and read by position."""
