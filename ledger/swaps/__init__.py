"""Swaps: segments take the place of runs; pins of the jobs that write them."""
