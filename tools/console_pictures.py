"""Takes the pictures of docs/console.md: `python -m tools.console_pictures [MINUTES]`.

Starts a gateway, lets producers and groups work on it for some minutes, and looks at its console with a real
Chromium, as the tests do.
"""

import asyncio
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.chromium import Page, running_chromium
from tests.support.gateway import Gateway
from tests.support.versions import ROOT

PICTURES: Final = ROOT / "docs" / "pictures"
SIZE: Final = (1240, 800)
TOPICS: Final[Mapping[str, tuple[int, int]]] = {
    "orders": (6, 140),
    "orders.returns": (2, 9),
    "payments": (3, 90),
    "payments.refunds": (1, 4),
    "clicks": (12, 420),
    "inventory": (3, 35),
    "emails": (1, 22),
    "shipments": (3, 60),
    "audit.log": (1, 15),
}
"""Partitions, and records a second."""
GROUPS: Final[Mapping[str, tuple[str, float]]] = {
    "billing": ("payments", 1.0),
    "warehouse": ("orders", 1.0),
    "mailer": ("emails", 1.0),
    "analytics": ("clicks", 0.6),
    "fraud-detection": ("payments", 0.9),
}
"""What a group reads, and which share of it it manages."""
STOPPED: Final = "reports"
CODECS: Final = ("zstd", "lz4", "none")


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, partitions) for name, (partitions, _) in TOPICS.items()]
    for done in admin.create_topics(new).values():
        done.result(20)


def produce(bootstrap: str, codec: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    dice, number = random.Random(codec), 0
    while not ended.is_set():
        wave = 1 + 0.5 * dice.random() + (0.8 if int(time.time() / 40) % 3 == 0 else 0)
        for topic, (_, rate) in TOPICS.items():
            for _ in range(max(1, int(rate * wave / 10 / len(CODECS)))):
                number += 1
                producer.produce(
                    topic, value_of(number, dice), f"customer-{dice.randrange(2000)}", headers=headers(dice)
                )
        producer.poll(0)
        ended.wait(0.1)
    producer.flush(10)


def value_of(number: int, dice: random.Random) -> bytes:
    items = [{"sku": f"A-{dice.randrange(900)}", "count": 1 + dice.randrange(3)}]
    value = {"number": number, "total": round(dice.random() * 180, 2), "currency": "EUR", "items": items}
    return json.dumps(value).encode()


def headers(dice: random.Random) -> list[tuple[str, str | bytes | None]]:
    return [("trace-id", f"{dice.getrandbits(64):016x}"), ("source", "shop")]


def consume(bootstrap: str, group: str, ended: threading.Event) -> None:
    topic, share = GROUPS.get(group, ("orders", 1.0))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not ended.is_set():
        consumer.consume(max(1, int(TOPICS[topic][1] * share / 2)), 0.4)
        ended.wait(0.1)
    consumer.close()


def work(bootstrap: str, seconds: float) -> tuple[threading.Event, list[threading.Thread]]:
    """Producers and groups, which go on until the event is set."""
    create(bootstrap)
    ended, some = threading.Event(), threading.Event()
    tasks = [threading.Thread(target=produce, args=(bootstrap, codec, ended)) for codec in CODECS]
    tasks += [threading.Thread(target=consume, args=(bootstrap, group, ended)) for group in GROUPS]
    stopped = threading.Thread(target=consume, args=(bootstrap, STOPPED, some))
    for task in (*tasks, stopped):
        task.start()
    time.sleep(seconds / 3)
    some.set()
    stopped.join()
    time.sleep(2 * seconds / 3)
    return ended, tasks


async def take(page: Page, name: str, scheme: str, place: str, until: str) -> None:
    await page.evaluate(f"document.documentElement.dataset.theme = {scheme!r}")
    await page.evaluate(f"location.hash = {place!r}")
    await page.until(until)
    await asyncio.sleep(1.5)
    await page.screenshot(PICTURES / f"console-{name}.png")


async def pictures(address: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        async with running_chromium(Path(directory)) as browser:
            page = await browser.open(f"http://{address}/")
            await page.resize(*SIZE)
            rows = "document.querySelectorAll('tbody tr').length > 4"
            # Rates are known only then.
            await asyncio.sleep(14)
            await take(page, "overview", "light", "#/overview", rows)
            await take(page, "overview-dark", "dark", "#/overview", rows)
            await take(page, "topics", "light", "#/topics?sort=rate&order=desc", rows)
            await page.evaluate("location.hash = '#/topic?name=orders'")
            await page.until(rows)
            await page.click("table.records tbody tr:nth-child(2) td")
            await take(page, "records", "dark", "#/topic?name=orders", "document.querySelector('.detail')")
            await page.evaluate(f"location.hash = '#/group?name={STOPPED}'")
            await page.click("#reset-preview")
            place = f"#/group?name={STOPPED}"
            await take(page, "group", "light", place, "document.querySelector('#reset-apply')")
            place = "#/ledger?topic=orders&partition=2&offset=500"
            await take(page, "ledger", "dark", place, "document.querySelectorAll('.step').length === 4")
            assert page.troubles == [], page.troubles


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    with tempfile.TemporaryDirectory() as directory:
        shown = ["--set", "admin.read_records=true", "--set", "admin.write=true"]
        gateway = Gateway(Path(directory), shown)
        gateway.start()
        try:
            ended, tasks = work(gateway.bootstrap, minutes * 60)
            try:
                asyncio.run(pictures(gateway.admin.address))
            finally:
                ended.set()
                for task in tasks:
                    task.join()
        finally:
            gateway.stop()


if __name__ == "__main__":
    main()
