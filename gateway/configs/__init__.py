"""Configs of topics, brokers and groups: definitions, values, and how they are described and altered."""
