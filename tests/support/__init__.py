"""What the suites share: servers to test against, raw sockets, the table at the end of a run."""
