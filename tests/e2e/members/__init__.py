"""Programs that are members of a consumer group, one a client library, several members in each.

    PROGRAM bootstrap group topic members strategy instance-prefix

`strategy` is `eager` or `cooperative`; with an instance prefix the members are static. Each reads, says what
it has read, commits, and reads on; it prints what it gets on stdout, a JSON object a line:

    {"at": monotonic ns, "member": 0, "event": "assigned", "partitions": [0, 1]}     also revoked, lost
    {"at": ..., "member": 0, "event": "read", "records": [[partition, offset], ...]}
    {"at": ..., "member": 0, "event": "refused", "reason": "UNKNOWN_MEMBER_ID"}      to a commit
    {"at": ..., "member": 0, "event": "failed", "reason": "..."}                     what nobody expected

At the end of stdin they leave the group and the program ends. Others than those in Python are in
`tests/support/java/GroupMembers.java`, `../go/members*.go` and `../js/members.js`.
"""
