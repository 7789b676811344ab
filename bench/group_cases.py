"""The cases of consumer groups: how fast they form and rebalance, commits, and members that only heartbeat.

Members are raw protocol clients in one process. Both servers have group.initial.rebalance.delay.ms = 0.
What a case gives was validated: each group stable with all its members in one generation and with disjoint
shares, heartbeats and commits counted, committed offsets read back.
"""

from collections.abc import Mapping, Sequence

from bench.case import Case, Figures, Noise, Scale, new_topic, servers_spec
from bench.clients import measure
from bench.servers import Server, delete_topic
from bench.stats import percentile

COMMITTERS = 8
MEMBERS_A_GROUP = 100
HEARTBEAT_S = 3.0


def cycle(members: int) -> Case:
    """Groups of this number of members that form and lose one, repeatedly."""
    name = f"group_{members}"

    def run(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
        spec = {"host": server.host, "port": server.port, "members": members, "cycles": scale.group_cycles}
        measured = measure(server.pid, [("group_cycle", spec)])
        noise(measured.others_percent)
        (said,) = measured.results
        if not len(said["join_ms"]) == len(said["rebalance_ms"]) == scale.group_cycles:
            raise RuntimeError(f"{len(said['join_ms'])} groups formed instead of {scale.group_cycles}")
        return {
            name: {
                "join_ms": percentile(said["join_ms"], 50),
                "rebalance_ms": percentile(said["rebalance_ms"], 50),
                "cpu_cycle_ms": 1e3 * measured.cpu_s / scale.group_cycles,
            }
        }

    return Case((name,), f"a group of {members} members forms, and one leaves", run)


def _commits(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    topic = new_topic(server, "committed", COMMITTERS)
    each = scale.commits // COMMITTERS
    spec = servers_spec(server, topic, members=COMMITTERS, commits_each=each)
    measured = measure(server.pid, [("group_commits", spec)])
    delete_topic(server, topic)
    noise(measured.others_percent)
    (said,) = measured.results
    if said["commits"] != each * COMMITTERS:
        raise RuntimeError(f"{said['commits']} commits instead of {each * COMMITTERS}")
    return {
        "group_commits": {
            "commits_s": said["commits"] / said["took_s"],
            "cpu_us_commit": 1e6 * measured.cpu_s / said["commits"],
            "system_cpu_us_commit": 1e6 * measured.system_cpu_s / said["commits"],
        }
    }


def _idle_members(server: Server, scale: Scale, noise: Noise) -> Mapping[str, Figures]:
    rounds = round(scale.idle_seconds / HEARTBEAT_S)
    spec = {
        "host": server.host,
        "port": server.port,
        "members": scale.idle_members,
        "group_members": min(MEMBERS_A_GROUP, scale.idle_members),
        "heartbeat_s": HEARTBEAT_S,
        "rounds": rounds,
    }
    measured = measure(server.pid, [("group_idle", spec)])
    noise(measured.others_percent)
    (said,) = measured.results
    if said["heartbeats"] != scale.idle_members * rounds:
        raise RuntimeError(f"{said['heartbeats']} heartbeats were answered")
    return {
        "group_idle": {
            "cpu_percent": 100 * measured.cpu_s / measured.wall_s,
            "cpu_us_request": 1e6 * measured.cpu_s / said["heartbeats"],
        }
    }


GROUP_CASES: Sequence[Case] = (
    cycle(10),
    cycle(100),
    Case(("group_commits",), "offset commits of 8 members, one in flight each", _commits, ("group_commits",)),
    Case(("group_idle",), "1,000 members that heartbeat every 3 s", _idle_members),
)
