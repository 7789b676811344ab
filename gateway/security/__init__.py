"""Who may connect, and over what: the bounds at the door, and TLS."""
