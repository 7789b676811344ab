"""A web server's access log, generated: the same lines for the same seed, on every machine."""

import random
from collections.abc import Iterator

PATHS = ["/", "/index.html", "/favicon.ico", "/search", "/cart", "/login", "/static/site.css", "/api/items"]
STATUSES = [200] * 20 + [304] * 5 + [301, 404, 404, 500]
METHODS = ["GET"] * 9 + ["POST"]
AGENTS = ["Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Mozilla/5.0 (iPhone)", "Go-http-client/1.1"]


def access_log_lines(count: int, seed: int) -> Iterator[bytes]:
    """Lines in the common log format with an agent, numbered so that no two are the same."""
    choice = random.Random(seed)
    for number in range(count):
        bits = choice.getrandbits(64)
        client = f"10.{bits & 255}.{bits >> 8 & 255}.{bits >> 16 & 255}"
        second = number // 50
        clock = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        method, path = METHODS[(bits >> 24) % len(METHODS)], PATHS[(bits >> 28) % len(PATHS)]
        line = (
            f"{client} - - [01/Mar/2025:{clock} +0000] "
            f'"{method} {path}?n={number} HTTP/1.1" '
            f"{STATUSES[(bits >> 36) % len(STATUSES)]} {bits >> 44} "
            f'"-" "{AGENTS[(bits >> 32) % len(AGENTS)]}"'
        )
        yield line.encode()
