"""Deadlines and timers that the event loop does not offer itself."""
