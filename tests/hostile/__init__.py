"""Attacks against a real gateway, each while a well-behaved client uses it."""
