"""Settings of stores elsewhere: what belongs together, and passwords that are never shown."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.config import SETTINGS, load_settings, secret_of
from gateway.settings import ConfigError

PASSWORD = "DRAGOMAN_STORAGE_ETCD_PASSWORD"
USER = "DRAGOMAN_STORAGE_ETCD_USER"


@pytest.mark.parametrize(
    ("flags", "environment", "says"),
    [
        ({"storage.image": "file:/x"}, {}, r"storage\.image = 'file:/x': expected none, or sqlite:PATH$"),
        ({"storage.image": "sqlite:"}, {}, r"storage\.image = 'sqlite:': expected none, or sqlite:PATH$"),
        ({"storage.s3_path_style": "yes"}, {}, r"storage\.s3_path_style"),
        ({"storage.etcd_user": "u"}, {}, r"storage\.etcd_user and its password"),
        ({}, {PASSWORD: "secret"}, r"storage\.etcd_user and its password"),
        ({"storage.etcd_password_file": "/x"}, {USER: "u", PASSWORD: "secret"}, "both set: give one of them"),
        ({"storage.etcd_password": "secret"}, {}, rf"set {PASSWORD} in the environment"),
        ({"storage.etcd_certificate": "/x"}, {}, r"etcd_certificate and storage\.etcd_key belong together"),
        ({"storage.filer_key": "/x"}, {}, r"filer_certificate and storage\.filer_key belong together"),
    ],
)
def test_what_does_not_fit_together_is_refused_without_showing_a_secret(
    flags: Mapping[str, str], environment: Mapping[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        load_settings(flags, environment)
    assert "secret" not in str(refused.value)


def test_a_password_comes_from_the_environment_or_a_file_and_is_in_no_repr(tmp_path: Path) -> None:
    storage = load_settings({}, {USER: "u", PASSWORD: "secret"}).storage
    assert storage.etcd_password == "secret"
    assert "secret" not in repr(storage)
    assert SETTINGS["storage.etcd_password"].is_secret
    file = tmp_path / "password"
    file.write_text("first line\nsecond line\n")
    assert secret_of("", str(file), "x") == b"first line"
    with pytest.raises(ConfigError, match=r"storage\.etcd_password_file = /gone: cannot read the file"):
        secret_of("", "/gone", "storage.etcd_password_file")
