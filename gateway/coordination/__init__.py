"""The shard: its journal, its recovery, and the owner that decides requests against the durable state."""
