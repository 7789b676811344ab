"""Topics: finding, creating, growing, altering and deleting them."""
