"""What runs beside the requests: the image, snapshots and pruning, garbage and orphans."""
