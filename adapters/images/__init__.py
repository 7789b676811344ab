"""Image stores: a shard's durable state as rows, for a fast restart."""
