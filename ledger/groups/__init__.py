"""Consumer groups of the classic protocol, and the offsets that groups have committed."""
