"""The double of a gateway for merge jobs, with its objects where another process finds them."""

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from adapters.open import BLOBS_DIRECTORY
from tests.support.merge_peer import MergePeer


class ObjectFiles(MutableMapping[str, bytes]):
    """Objects by their locators, as `objects+file:DIRECTORY` has them."""

    def __init__(self, directory: Path) -> None:
        self.url = f"objects+file:{directory}"
        self._root = directory / BLOBS_DIRECTORY
        self._root.mkdir(parents=True)

    def __getitem__(self, key: str) -> bytes:
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def __delitem__(self, key: str) -> None:
        (self._root / key).unlink()

    def __iter__(self) -> Iterator[str]:
        """Locators, those of WAL objects first as they are written."""
        for path in sorted(self._root.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self._root))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def peer_on_disk(directory: Path, partitions: int = 1, page: int = 300) -> tuple[MergePeer, ObjectFiles]:
    """The gateway, and its objects."""
    peer, objects = MergePeer(partitions=partitions, page=page), ObjectFiles(directory)
    peer.objects = objects
    return peer, objects
