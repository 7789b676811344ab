"""Faults on purpose: loss of power, kill -9, full and read-only disks, damaged bytes."""
