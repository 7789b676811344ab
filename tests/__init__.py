"""Tests of Dragoman: one directory a suite, and what they share in `tests.support`."""
