"""Topics: their names, ids, partitions and configs."""
