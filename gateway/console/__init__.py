"""The web console: one page at the admin address, and the JSON from which it is drawn."""
