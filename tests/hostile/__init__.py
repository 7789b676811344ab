"""Attacks against a real gateway, each with a well-behaved client beside it."""
