"""The cluster as a whole: its id, its owner's epoch, and restores from backups."""
