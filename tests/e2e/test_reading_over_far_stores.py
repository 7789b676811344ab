"""What one client writes, every client reads, over each far store: tests of `test_produce_and_consume.py`."""

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Endpoint
from tests.e2e.test_produce_and_consume import (
    test_batches_are_kept_as_they_were_compressed_and_numbered as test_batches_are_kept,
)
from tests.e2e.test_produce_and_consume import (
    test_each_of_32_partitions_counts_from_zero as test_each_partition_counts_from_zero,
)
from tests.e2e.test_produce_and_consume import (
    test_odd_records_reach_every_client_byte_for_byte as test_odd_records_reach_every_client,
)
from tests.e2e.test_produce_and_consume import (
    test_records_of_900_kb_reach_every_client as test_large_records_reach_every_client,
)
from tests.e2e.test_produce_and_consume import (
    test_thousands_of_small_records_keep_their_order as test_small_records_keep_their_order,
)
from tests.support.far_stores import FAR_ROWS, far_gateway, far_place

__all__ = [
    "test_batches_are_kept",
    "test_each_partition_counts_from_zero",
    "test_large_records_reach_every_client",
    "test_odd_records_reach_every_client",
    "test_small_records_keep_their_order",
]

pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=FAR_ROWS)
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with far_gateway(far_place(request, request.param), tmp_path_factory.mktemp("far")) as gateway:
        yield gateway
