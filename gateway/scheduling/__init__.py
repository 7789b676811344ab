"""How heavy requests share the event loop, memory and worker threads: in slices, round-robin by address."""
