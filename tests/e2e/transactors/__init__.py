"""Programs with transactional producers and read_committed readers, one a client library.

Each reads orders on stdin, a JSON object a line, and prints one result a line: what was ordered, or
`{"kind": name of the library's error, "error": its text}`.

    {"order": "init", "producer": "first", "id": transactional id, "timeout_ms": 60000}
    {"order": "begin", "producer": "first"}
    {"order": "send", "producer": "first", "topic": ..., "partition": 0, "values": ["a", "b"]}
    {"order": "end", "producer": "first", "commit": true}
    {"order": "read", "topic": ..., "partitions": 2, "committed": true}    {"values": [["a", "end"], ["end"]]}
    {"order": "copy", "id": ..., "group": ..., "source": ..., "target": ..., "partitions": 2,
     "batch": 10, "abort_every": 3, "pause_ms": 0}

All name the `bootstrap`. `init` makes a producer, `send` waits until all are acknowledged, `read` reads
each partition from its start to its first value `end`. `copy` reads with a group, writes each value as it
is to the same partition of another topic, at most `batch` records a transaction, and `pause_ms` later the
offsets of the group; every `abort_every`-th transaction (0: none) is aborted and read again. It has its
result when it has committed the `end` of each partition.

Others than those in Python are in `tests/support/java/Transactor.java`, `../go/transactor*.go` and
`../js/transactor.js`.
"""
