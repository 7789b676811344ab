"""Where a setting's value comes from, and what is refused."""

from pathlib import Path

import pytest

from gateway.config import SETTINGS, given_by_command, load_settings, parse_assignment, unknown_variables
from gateway.settings import ConfigError, Settings


def toml(directory: Path, text: str) -> Path:
    file = directory / "dragoman.toml"
    file.write_text(text)
    return file


def test_without_anything_the_defaults_hold() -> None:
    assert load_settings({}, {}) == Settings()


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "[limits]\nidle_ms = 1001\nconnections = 11\nfetch_sessions = 21\n")
    environment = {"DRAGOMAN_LIMITS_IDLE_MS": "1002", "DRAGOMAN_LIMITS_CONNECTIONS": "12"}
    limits = load_settings({"limits.idle_ms": "1003"}, environment, file).limits
    assert (limits.idle_ms, limits.connections, limits.fetch_sessions) == (1003, 12, 21)


def test_broker_settings_keep_kafkas_names_with_and_without_quotes(tmp_path: Path) -> None:
    file = toml(tmp_path, '[broker]\n"num.partitions" = 3\nauto.create.topics.enable = false\n')
    broker = load_settings({}, {"DRAGOMAN_BROKER_MESSAGE_MAX_BYTES": "99"}, file).broker
    assert (broker.num_partitions, broker.auto_create_topics_enable, broker.message_max_bytes) == (
        3,
        False,
        99,
    )


def test_a_list_is_separated_by_commas_in_the_environment() -> None:
    environment = {"DRAGOMAN_LISTENERS_LISTEN": "PLAINTEXT://a:1, PLAINTEXT://b:2"}
    assert load_settings({}, environment).listeners.listen == ("PLAINTEXT://a:1", "PLAINTEXT://b:2")


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({"limits.frame_byte": "1"}, {}, "did you mean limits.frame_bytes?"),
        ({"broker.num.partition": "1"}, {}, "did you mean broker.num.partitions?"),
        ({}, {"DRAGOMAN_LIMIT_IDLE_MS": "1"}, "did you mean DRAGOMAN_LIMITS_IDLE_MS?"),
        ({}, {"DRAGOMAN_LIMITS_IDLE": "1"}, "did you mean DRAGOMAN_LIMITS_IDLE_MS?"),
        ({}, {"DRAGOMAN_DATA_DIR": "x"}, "did you mean DRAGOMAN_STORAGE_DATA_DIR?"),
        ({}, {"DRAGOMAN_ADMIN_PORT": "9644"}, "unknown environment variable DRAGOMAN_ADMIN_PORT"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_right_one(
    flags: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match="unknown") as refusal:
        load_settings(flags, environment)
    assert expected in str(refusal.value)


def test_nothing_is_proposed_in_the_place_of_a_name_that_is_far_from_all() -> None:
    with pytest.raises(ConfigError, match=r"DRAGOMAN_TLS_ZZZZZZZZZZZZ$"):
        load_settings({}, {"DRAGOMAN_TLS_ZZZZZZZZZZZZ": "1"})


@pytest.mark.parametrize("service", ["", "ADMIN_", "LISTENERS_2_"])
def test_what_kubernetes_sets_for_a_service_is_passed_over_in_silence(service: str) -> None:
    links = {
        f"DRAGOMAN_{service}{name}": value
        for name, value in {
            "SERVICE_HOST": "10.0.0.1",
            "SERVICE_PORT": "9092",
            "SERVICE_PORT_KAFKA": "9092",
            "PORT": "tcp://10.0.0.1:9092",
            "PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "PORT_9092_TCP_PROTO": "tcp",
            "PORT_9092_TCP_PORT": "9092",
            "PORT_9092_TCP_ADDR": "10.0.0.1",
        }.items()
    }
    assert load_settings({}, links) == Settings()
    assert unknown_variables(links) == []


def test_a_variable_of_no_section_is_logged_but_does_not_stop_anything() -> None:
    environment = {"DRAGOMAN_PORT": "9092", "DRAGOMAN_HOME": "/opt", "DRAGOMAN_LOG_LEVEL": "debug"}
    assert load_settings({}, environment).log.level == "debug"
    assert unknown_variables(environment) == ["DRAGOMAN_PORT", "DRAGOMAN_HOME"]


def test_what_the_commands_read_means_nothing_to_a_gateway() -> None:
    environment = {"DRAGOMAN_BOOTSTRAP": "127.0.0.1:1", "DRAGOMAN_CLIENT_TLS_CA": "ca.pem"}
    environment |= {"DRAGOMAN_CLIENT_PROFILE": "a", "DRAGOMAN_CLIENT_CONFIG": "b"}
    assert load_settings({}, environment) == Settings() and unknown_variables(environment) == []


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "", str(2**63)])
def test_a_value_out_of_bounds_is_refused_by_name_and_origin(value: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.connections = .*DRAGOMAN_LIMITS_CONNECTIONS"):
        load_settings({}, {"DRAGOMAN_LIMITS_CONNECTIONS": value})


def test_a_file_with_a_string_for_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected `int`"):
        load_settings({}, {}, toml(tmp_path, '[limits]\nconnections = "10"\n'))


@pytest.mark.parametrize("text", ["[limits", "[limits]\nconnections = 1\nconnections = 2\n"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings({}, {}, toml(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings({}, {}, tmp_path / "absent.toml")


def test_switches_of_the_test_suite_are_no_settings() -> None:
    assert load_settings({}, {"DRAGOMAN_TEST_FULL": "1"}) == Settings()


def test_an_assignment_needs_an_equals_sign() -> None:
    assert parse_assignment("log.level=debug") == ("log.level", "debug")
    with pytest.raises(ConfigError, match="section"):
        parse_assignment("log.level")


def test_a_setting_is_given_by_its_flag_or_by_set_and_not_by_both() -> None:
    flags = {"admin.listen": "127.0.0.1:1"}
    given = given_by_command(flags, ["log.level=debug", "log.level=info"])
    assert given == {"admin.listen": "127.0.0.1:1", "log.level": "info"}
    with pytest.raises(ConfigError, match=r"admin\.listen is given twice"):
        given_by_command(flags, ["admin.listen=127.0.0.1:2"])


def test_the_largest_request_must_fit_into_the_budget() -> None:
    with pytest.raises(ConfigError, match="must fit"):
        load_settings({"limits.buffer_bytes": "1048576"}, {})


def test_every_setting_is_documented_and_its_default_is_within_its_bounds() -> None:
    for setting in SETTINGS.values():
        assert setting.doc
        if setting.is_secret:
            continue
        default = ",".join(setting.default) if setting.is_list else str(setting.default)
        load_settings({setting.name: default}, {})


def test_no_two_settings_share_a_name_in_the_environment() -> None:
    assert len({setting.environment_name for setting in SETTINGS.values()}) == len(SETTINGS)
