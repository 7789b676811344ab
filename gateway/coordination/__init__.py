"""The shard: its journal, its owner, and where requests meet durable truth."""
