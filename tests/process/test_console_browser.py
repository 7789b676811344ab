"""The console in a real Chromium: what a user sees and does, and what a hostile name cannot do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.chromium import Browser, Page, running_chromium
from tests.support.debian import PackageMissing
from tests.support.gateway import Gateway, GatewayFactory

WAIT_S = 20.0
TOKEN = "token-of-the-console-0123456789"
OPEN = ("--set", "admin.read_records=true", "--set", "admin.write=true")
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='taken'</script>"


@asynccontextmanager
async def browser_of(tmp_path: Path, *flags: str) -> AsyncIterator[Browser]:
    try:
        async with running_chromium(tmp_path, *flags) as browser:
            yield browser
    except PackageMissing as error:
        pytest.skip(f"needs Debian's chromium: {error}")


def started(factory: GatewayFactory, *options: str) -> Gateway:
    gateway = factory(options)
    gateway.start()
    return gateway


def fill(gateway: Gateway) -> None:
    """Topics `orders` and `payments`, and the group `billing`, which is 30 records behind."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for done in admin.create_topics([NewTopic("orders", 2), NewTopic("payments", 1)]).values():
        done.result(WAIT_S)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "compression.type": "zstd"})
    for i in range(40):
        producer.produce("orders", f'{{"order": {i}}}', f"key-{i}", 0)
    producer.produce("orders", HOSTILE, HOSTILE, 1, headers=[(HOSTILE, HOSTILE.encode())])
    assert producer.flush(WAIT_S) == 0
    for group in ("billing", HOSTILE):
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        consumer.close()


async def opened(browser: Browser, gateway: Gateway, place: str = "") -> Page:
    return await browser.open(f"http://{gateway.admin.address}/{place}")


async def title_is(page: Page, title: str) -> None:
    await page.until(f"document.querySelector('h1')?.textContent === {title!r}")


async def test_everything_is_reached_with_the_keys(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    gateway = started(gateway_factory, *OPEN)
    await asyncio.to_thread(fill, gateway)
    async with browser_of(tmp_path) as browser:
        page = await opened(browser, gateway)
        await title_is(page, "All is well")
        assert "2" in await page.text(".tiles") and "billing" in await page.text(".pair")
        await page.press("g", "t")
        await title_is(page, "Topics")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        await page.press("/")
        await page.write("pay")
        await page.until("document.querySelectorAll('tbody tr').length === 1")
        await page.press("Enter", "Enter")
        await title_is(page, "payments")
        await page.press("u")
        await title_is(page, "Topics")
        await page.press("g", "g")
        await title_is(page, "Groups")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        await page.press("j", "j", "Enter")
        await title_is(page, "billing")
        await page.until("document.body.innerText.includes('lag 30')")
        await page.press("?")
        await page.until("document.querySelector('dialog').open")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog').open")
        before = await page.evaluate("document.documentElement.dataset.theme")
        await page.press("d")
        assert await page.evaluate("document.documentElement.dataset.theme") != before
        assert page.troubles == []


async def test_records_lead_to_their_bytes(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    gateway = started(gateway_factory, *OPEN)
    await asyncio.to_thread(fill, gateway)
    async with browser_of(tmp_path) as browser:
        page = await opened(browser, gateway, "#/topic?name=orders")
        await page.until("document.querySelectorAll('table.records tbody tr').length === 26")
        await page.evaluate("document.querySelectorAll('.filters input')[1].focus()")
        await page.write("key-39")
        await page.press("Enter")
        await page.until("document.querySelectorAll('table.records tbody tr').length === 1")
        await page.click("table.records tbody tr td")
        await page.until("document.querySelector('.detail')?.innerText.includes('\"order\": 39')")
        await page.click(".detail a")
        await title_is(page, "Ledger")
        await page.until("document.querySelectorAll('.step').length === 4")
        text = await page.text("main")
        assert "Offset 39" in text and "log/0/" in text and "zstd" in text and "matches" in text
        assert page.troubles == []


def leave_open(gateway: Gateway) -> None:
    """A transaction of a hostile transactional id; the one of `billing-1` has ended."""
    for name in ("billing-1", HOSTILE):
        producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": name})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.flush(WAIT_S)
        if name != HOSTILE:
            producer.commit_transaction(WAIT_S)


async def test_an_open_transaction_is_seen_with_its_age(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    gateway = started(gateway_factory)
    await asyncio.to_thread(fill, gateway)
    await asyncio.to_thread(leave_open, gateway)
    async with browser_of(tmp_path) as browser:
        page = await opened(browser, gateway)
        await title_is(page, "All is well")
        await page.press("g", "x")
        await title_is(page, "Transactions")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        first, second = await page.evaluate(
            "[...document.querySelectorAll('tbody tr')].map(row => row.innerText)"
        )
        assert HOSTILE in first and "Ongoing" in first and first.rstrip()[-1] == "s"
        assert "billing-1" in second and "CompleteCommit" in second
        await page.press("/")
        await page.write("bill")
        await page.until("document.querySelectorAll('tbody tr').length === 1")
        assert page.troubles == []


async def test_a_reset_is_previewed_and_then_done(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    gateway = started(gateway_factory, *OPEN)
    await asyncio.to_thread(fill, gateway)
    async with browser_of(tmp_path) as browser:
        page = await opened(browser, gateway, "#/group?name=billing")
        await page.click("#reset-preview")
        await page.until("document.querySelector('#reset-apply')")
        assert "−10" in await page.text(".reset") or "-10" in await page.text(".reset")
        assert "lag 30" in await page.text("main")
        await page.click("#reset-apply")
        await page.until("document.querySelector('#reset-done')")
        await page.until("document.body.innerText.includes('lag 40')")
        assert page.troubles == []


async def test_names_and_records_never_become_markup(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    gateway = started(gateway_factory, *OPEN)
    await asyncio.to_thread(fill, gateway)
    async with browser_of(tmp_path) as browser:
        page = await opened(browser, gateway, "#/groups")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        assert HOSTILE in await page.text("tbody")
        await page.press("j", "Enter")
        await title_is(page, HOSTILE)
        await page.evaluate("location.hash = '#/topic?name=orders'")
        await page.until(f"document.body.innerText.includes({HOSTILE!r})")
        await page.evaluate(f"location.hash = '#/topic?name=' + encodeURIComponent({HOSTILE!r})")
        await page.until("document.querySelector('main > .notice.bad')")
        assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert "taken" not in await page.evaluate("document.title.split('·')[1]")
        # What would make markup of a text is refused by the browser itself.
        assert await page.evaluate(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()"
        )
        assert await page.evaluate(
            "new Promise(done => { const s = document.createElement('script'); s.onerror = () => done(true);"
            " s.onload = () => done(false); try { s.src = 'http://127.0.0.1:1/x.js' } catch { done(true) }"
            " document.head.append(s) })"
        )


async def test_the_page_asks_for_the_token_and_keeps_it_in_the_tab(
    gateway_factory: GatewayFactory, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    gateway = started(gateway_factory, "--set", f"admin.token_file={file}")
    await asyncio.to_thread(fill, gateway)
    (tmp_path / "chromium").mkdir()
    async with browser_of(tmp_path / "chromium") as browser:
        page = await opened(browser, gateway, "#/topics")
        await page.until("document.querySelector('dialog').open")
        await page.write("not-the-token-that-is-needed")
        await page.press("Enter")
        await page.until("document.querySelector('dialog').innerText.includes('not accepted')")
        await page.write(TOKEN)
        await page.press("Enter")
        await title_is(page, "Topics")
        await page.until("document.querySelectorAll('tbody tr').length === 2")
        assert await page.evaluate("document.cookie + JSON.stringify(localStorage)") in ("{}", "")
        # Without the settings nothing can be read or changed.
        await page.evaluate("location.hash = '#/topic?name=orders'")
        await page.until("document.body.innerText.includes('Records are not shown')")
        await page.evaluate("location.hash = '#/group?name=billing'")
        await page.until("document.body.innerText.includes('admin.write')")
        assert await page.evaluate("document.querySelector('#reset-preview') === null")


async def test_a_page_of_another_site_reads_nothing(gateway_factory: GatewayFactory, tmp_path: Path) -> None:
    """`evil.example` resolves to this address, as DNS rebinding makes it; another site sends requests."""
    gateway = started(gateway_factory, *OPEN)
    other = started(gateway_factory, "--set", "admin.console=false")
    async with browser_of(tmp_path, "--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
        rebound = await browser.open(f"http://evil.example:{gateway.admin.port}/api/topics")
        assert "admin.hosts" in await rebound.text()
        page = await browser.open(f"http://{other.admin.address}/healthz")
        for options in ("{}", "{mode: 'no-cors'}", "{method: 'POST', body: '{}', mode: 'no-cors'}"):
            script = (
                f"fetch('http://{gateway.admin.address}/api/topics', {options})"
                ".then(answer => answer.text()).then(text => text.includes('rows'), () => false)"
            )
            assert await page.evaluate(script) is False
    assert "console.denied" in gateway.log_tail()
