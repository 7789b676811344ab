"""What handlers and services share about a request: its slices of the event loop, its response's size."""
