"""Limits of calls to etcd and to a filer, for tests."""

from typing import Final

from adapters.rpc.caller import Limits

PATIENT: Final = Limits(call_s=60.0, attempt_s=60.0, connect_s=30.0, patience_s=60.0)
"""A server that stands still for a while on a busy machine makes no outcome unknown."""
