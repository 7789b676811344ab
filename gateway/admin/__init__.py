"""Health, metrics and version pages for operators."""
