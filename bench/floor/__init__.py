"""Servers that do nothing but read, write once, and answer: what is left of a figure on this machine."""
