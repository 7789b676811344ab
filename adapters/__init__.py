"""Where bytes and facts live: one file a backend, each implementing a port of the ledger."""
