"""The local log: a journal whose entries are written together with the batches that they number."""
