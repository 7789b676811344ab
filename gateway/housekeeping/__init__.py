"""Background tasks: the image, snapshots and pruning, retention, garbage and orphans."""
