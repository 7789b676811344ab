"""`dragoman ledger translate`: by the stores alone, or by the gateway that has them locked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.cli.client import ClientError
from gateway.cli.exits import Exit
from gateway.cli.job_process import TlsFiles, job_lines, job_request
from gateway.cli.offline_state import offline_ledger, recover_offline, run
from gateway.cli.output import print_json, print_text
from gateway.offline.translate import translate_offset
from gateway.settings import Settings
from ledger.errors import StoreLocked
from ledger.settled.lookup import NotTranslated, ObjectGone


@dataclass(frozen=True, slots=True)
class TranslateOptions:
    topic: str
    partition: int
    offset: int
    as_json: bool = False
    tls: TlsFiles = field(default_factory=TlsFiles)


def translate(settings: Settings, options: TranslateOptions) -> Exit:
    """Print where the batch is. ClientError where no settled ledger can say that."""
    try:
        found: Mapping[str, Any] = run(lambda: _by_stores(settings, options))
    except StoreLocked:
        found = _by_gateway(settings, options)
    except (NotTranslated, ObjectGone) as error:
        raise ClientError(str(error)) from error
    if options.as_json:
        print_json(found)
    else:
        print_text(
            f"Offset {found['offset']} is in the batch of offsets {found['base_offset']} to "
            f"{found['last_offset']}: {found['size']} bytes at byte {found['start']} of {found['object']}."
        )
    return Exit.OK


async def _by_stores(settings: Settings, options: TranslateOptions) -> Mapping[str, Any]:
    async with offline_ledger(settings) as (stores, journal, image):
        recovered = await recover_offline(stores, journal, image)
        place = options.topic, options.partition, options.offset
        return await translate_offset(recovered.state, stores.segments, *place)


def _by_gateway(settings: Settings, options: TranslateOptions) -> Mapping[str, Any]:
    wanted = {"topic": options.topic, "partition": options.partition, "offset": options.offset}
    request = {**job_request(settings, options.tls), "job": "translate", "options": wanted}
    for key, value in job_lines(request):
        if key == "summary":
            return dict(value)
    raise AssertionError("a job ends with a summary or an error")
