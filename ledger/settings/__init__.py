"""Client quotas, and the configs of brokers and groups."""
