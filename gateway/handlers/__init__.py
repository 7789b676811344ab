"""One module an API: request -> a room -> response. Handlers hold no state."""
