"""The settings of a gateway that serves one job: what is for `serve` to decide it leaves as it is."""

from gateway.cli.serve_for_job import for_job
from gateway.config import load_settings

YEAR_MINUTES = 366 * 24 * 60


def test_no_client_connects_nothing_is_merged_and_no_offset_expires() -> None:
    """A command that is given the stores alone does not know for how long `serve` keeps offsets."""
    settings = for_job(load_settings({"groups.group.max.size": "5"}, {}), "/run/x.sock")
    assert settings.listeners.listen == () and settings.admin.listen == ""
    assert settings.internal.socket == "/run/x.sock"
    assert settings.housekeeping.merge_runs == 0
    assert settings.groups.offsets_retention_minutes >= 100 * YEAR_MINUTES
    assert settings.groups.group_max_size == 5
