"""What carries jobs out: a process on this machine, or Spark."""
