"""Who may use the console: hosts, origins, tokens."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gateway.console.access import Access, Denied, RequestFacts, host_name_of, read_token
from gateway.settings import Admin, ConfigError

TOKEN = "a-token-of-24-characters"
GET = RequestFacts("GET", "http", "127.0.0.1:9644", None, None, "", None)
POST = replace(GET, method="POST", content_type="application/json")


def access(settings: Admin | None = None, *, is_loopback: bool = True) -> Access:
    return Access(settings or Admin(), is_loopback=is_loopback)


def refused(check: Access, facts: RequestFacts) -> str:
    """The reason, empty for a request that is served."""
    try:
        check.check_sender(facts)
        check.check_user(facts)
    except Denied as denied:
        return denied.reason
    return ""


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return str(file)


@pytest.mark.parametrize("host", ["127.0.0.1:9644", "localhost:9644", "LOCALHOST", "[::1]:9644", "10.0.0.7"])
def test_a_host_that_no_other_site_can_take_is_served(host: str) -> None:
    assert refused(access(), replace(GET, host=host)) == ""


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example:9644",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "user@localhost",
        "localhost/x",
        "localhost:x",
        "127.0.0.1:999999",
        "localhost#",
        "[::1",
    ],
)
def test_a_name_that_resolves_to_this_address_is_refused(host: str | None) -> None:
    assert refused(access(), replace(GET, host=host)) == "host"


def test_a_name_of_the_setting_is_served_and_no_other() -> None:
    check = access(msgspec.structs.replace(Admin(), hosts=("Gateway.Example",)))
    assert refused(check, replace(GET, host="gateway.example:9644")) == ""
    assert refused(check, replace(GET, host="gateway.example.:9644")) == ""
    assert refused(check, replace(GET, host="other.gateway.example")) == "host"


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://127.0.0.1:9644", "http://127.0.0.1:9645", "http://127.0.0.1"],
)
@pytest.mark.parametrize("facts", [GET, POST], ids=["get", "post"])
def test_requests_of_other_origins_are_refused(facts: RequestFacts, origin: str) -> None:
    assert refused(access(), replace(facts, origin=origin)) == "origin"


def test_a_request_of_the_page_itself_is_served() -> None:
    own = replace(POST, origin="http://127.0.0.1:9644", fetch_site="same-origin")
    assert refused(access(), own) == ""


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_says_it_comes_from_elsewhere_gets_no_data(site: str) -> None:
    assert refused(access(), replace(GET, fetch_site=site)) == "origin"


def test_a_link_of_another_site_opens_the_page() -> None:
    access().check_sender(replace(GET, fetch_site="cross-site"))


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_of_another_site_can_send_is_refused(kind: str) -> None:
    assert refused(access(), replace(POST, content_type=kind)) == "content_type"


def test_beyond_loopback_the_console_is_closed_without_a_token() -> None:
    assert access(is_loopback=False).is_closed
    assert refused(access(is_loopback=False), GET) == "closed"


@pytest.mark.parametrize("is_loopback", [True, False])
def test_with_a_token_file_the_token_is_needed_everywhere(token_file: str, is_loopback: bool) -> None:
    check = access(msgspec.structs.replace(Admin(), token_file=token_file), is_loopback=is_loopback)
    assert refused(check, GET) == "no_token"
    assert refused(check, replace(GET, authorization=f"Bearer {TOKEN}x")) == "token"
    assert refused(check, replace(GET, authorization=f"Bearer {TOKEN[:-1]}")) == "token"
    assert refused(check, replace(GET, authorization="Bearer \udcff")) == "token"
    assert refused(check, replace(GET, authorization=f"Basic {TOKEN}")) == "token"
    assert refused(check, replace(GET, authorization=TOKEN)) == "token"
    assert refused(check, replace(GET, authorization=f"Bearer {TOKEN}")) == ""


def test_a_client_certificate_is_as_good_as_the_token(token_file: str) -> None:
    named = msgspec.structs.replace(Admin(), principals="User:CN=ann; User:CN=bob")
    check = access(named, is_loopback=False)
    assert not check.is_closed
    assert refused(check, GET) == "principal"
    assert refused(check, replace(GET, principal="User:CN=eve")) == "principal"
    assert refused(check, replace(GET, principal="User:CN=bob")) == ""
    both = access(msgspec.structs.replace(named, token_file=token_file), is_loopback=False)
    assert refused(both, replace(GET, principal="User:CN=ann")) == ""
    assert refused(both, replace(GET, principal="User:CN=eve")) == "no_token"
    assert refused(both, replace(GET, authorization=f"Bearer {TOKEN}")) == ""
    assert both.needs_token_of("User:ANONYMOUS") and not both.needs_token_of("User:CN=ann")


def test_a_denial_never_repeats_what_was_sent(token_file: str) -> None:
    check = access(msgspec.structs.replace(Admin(), token_file=token_file))
    with pytest.raises(Denied) as denied:
        check.check_user(replace(GET, authorization="Bearer guessed-in-vain-123"))
    assert "guessed" not in f"{denied.value} {denied.value.detail} {denied.value.reason}"


@pytest.mark.parametrize("text", ["", "\n", "short\n", "fifteen-chars-x\n", "   \nlong-enough-on-line-two\n"])
def test_a_token_that_could_be_guessed_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"admin\.token_file = .*shorter than 16") as refusal:
        read_token(str(file))
    assert "fifteen" not in str(refusal.value)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file"):
        read_token(str(tmp_path / "none"))


def test_the_name_of_a_host_header_has_neither_port_nor_brackets() -> None:
    assert host_name_of("[::1]:80") == "::1"
    assert host_name_of("A.Example.:80") == "a.example"
    assert host_name_of("a b") is None


def test_every_client_without_a_certificate_is_no_principal_to_be_let_in() -> None:
    with pytest.raises(ConfigError, match="everybody without a certificate"):
        Access(Admin(principals="User:CN=ann;User:ANONYMOUS"), is_loopback=False)
