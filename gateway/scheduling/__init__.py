"""How heavy requests share the event loop, memory and worker threads: in slices, by address in turn."""
