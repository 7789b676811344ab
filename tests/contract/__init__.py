"""One suite a port, which every backend passes."""
