"""A gateway, or another program of the tree, as a process of its own: what it says and how it ends."""
