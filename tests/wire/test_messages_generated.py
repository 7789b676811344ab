"""The generated modules are what the generator makes of Kafka's definitions, and are loaded one by one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from gateway.wire.apis import FIRST_FLEXIBLE, MINIMUM_SERVED, RANGES, ApiKey, codec_range
from gateway.wire.errors import ErrorCode, UnsupportedVersion
from gateway.wire.messages import codec
from tools import generate_messages

JAR = Path(os.environ.get(generate_messages.JAR_SETTING) or generate_messages.JAR)
needs_jar = pytest.mark.skipif(not JAR.exists(), reason=f"no kafka-clients jar at {JAR}")


@needs_jar
def test_the_generator_reproduces_the_committed_modules_byte_for_byte() -> None:
    made = dict(generate_messages.modules(JAR))
    committed = {
        path.name: path.read_text()
        for path in generate_messages.GENERATED.glob("*.py")
        if path.name != "__init__.py"
    }
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == []


@needs_jar
def test_names_versions_and_first_flexible_versions_are_kafkas() -> None:
    definitions = generate_messages.read_definitions(JAR)
    for key in ApiKey:
        versions = codec_range(key)
        if versions is None:
            continue
        for side in ("request", "response"):
            definition = definitions[key, side]
            name = definition["name"].removesuffix("Request").removesuffix("Response")
            assert generate_messages.snake_case(name).upper() == key.name
            valid = generate_messages.clipped(definition["validVersions"], (0, 99))
            assert valid[0] <= versions[0] <= versions[1] <= valid[1], key
            first = FIRST_FLEXIBLE.get(key)
            assert definition["flexibleVersions"] == ("none" if first is None else f"{first}+"), key


def test_every_served_api_has_a_request_and_a_response_of_its_versions() -> None:
    for key in RANGES:
        request, response = codec.load(key)
        assert request.__name__.removesuffix("Request") == response.__name__.removesuffix("Response")
        assert codec.request_schema(key).versions == codec.response_schema(key).versions == codec_range(key)


def test_produce_is_advertised_from_0_and_has_codecs_from_3() -> None:
    assert RANGES[ApiKey.PRODUCE] == (0, 13)
    assert MINIMUM_SERVED[ApiKey.PRODUCE] == 3
    with pytest.raises(UnsupportedVersion):
        codec.decode_request(ApiKey.PRODUCE, 2, memoryview(b""))


def test_an_api_without_messages_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersion):
        codec.load(ApiKey.LEADER_AND_ISR)


def test_loading_one_api_imports_no_other() -> None:
    program = (
        "import sys\n"
        "from gateway.wire.apis import ApiKey\n"
        "from gateway.wire.messages import codec\n"
        "before = [m for m in sys.modules if '.generated.' in m]\n"
        "codec.load(ApiKey.METADATA)\n"
        "print(before, [m for m in sys.modules if '.generated.' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=generate_messages.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[] ['gateway.wire.messages.generated.metadata']"


def test_error_codes_have_the_numbers_names_and_retriability_that_kio_knows() -> None:
    ours = {(code.name, code.value, code.retriable) for code in ErrorCode}
    assert ours == {(code.name.upper(), code.value, code.retriable) for code in KioErrorCode}
    assert len(ours) == 135
