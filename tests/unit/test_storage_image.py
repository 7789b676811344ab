"""`storage.image`: in the data directory, elsewhere, or left out."""

from pathlib import Path

from gateway.assembly import running_gateway
from gateway.config import load_settings

FLAGS = {"listeners.listen": ("PLAINTEXT://127.0.0.1:0",), "admin.listen": ""}


async def cluster_of(data_dir: Path, image: str) -> str:
    """Of one life of a gateway."""
    flags = {**FLAGS, "storage.data_dir": str(data_dir), "storage.image": image}
    async with running_gateway(load_settings(flags, {})) as gateway:
        return gateway.services.cluster_id


async def test_without_an_image_a_gateway_restarts_from_journal_and_snapshots(tmp_path: Path) -> None:
    data = tmp_path / "data"
    cluster_id = await cluster_of(data, "none")
    assert not (data / "image.db").exists()
    assert await cluster_of(data, "none") == cluster_id
    assert not (data / "image.db").exists()
    # The image that comes back later is as good as a new one.
    assert await cluster_of(data, "") == cluster_id
    assert (data / "image.db").exists()


async def test_a_scratch_image_may_be_lost_or_of_another_ledger(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch" / "image.db"
    scratch.parent.mkdir()
    first, second = tmp_path / "first", tmp_path / "second"
    cluster_id = await cluster_of(first, f"sqlite:{scratch}")
    assert scratch.exists() and not (first / "image.db").exists()
    other_id = await cluster_of(second, f"sqlite:{scratch}")
    assert other_id != cluster_id
    assert await cluster_of(first, f"sqlite:{scratch}") == cluster_id
    scratch.unlink()
    assert await cluster_of(first, f"sqlite:{scratch}") == cluster_id
    assert await cluster_of(second, "none") == other_id
