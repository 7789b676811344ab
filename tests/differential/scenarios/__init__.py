"""One module an API: its exchanges, in the order in which they are sent."""
