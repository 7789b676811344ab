"""What carries a merge job out: a process on the machine of the gateway."""
