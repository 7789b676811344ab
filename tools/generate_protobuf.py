"""Writes adapters/rpc/generated from adapters/rpc/*.proto.

    python tools/generate_protobuf.py       needs grpcio-tools (extra `protobuf`): `make protobuf`

Each module begins with the SHA-256 of its .proto, which a test compares: what is checked in is what the
.proto says. The same versions give the same bytes.
"""

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "adapters" / "rpc"
GENERATED: Final = SOURCES / "generated"
HEAD: Final = "# Written by tools/generate_protobuf.py from a .proto with this SHA-256, never by hand:\n"


def main() -> int:
    from grpc_tools import protoc

    protos = sorted(SOURCES.glob("*.proto"))
    with tempfile.TemporaryDirectory() as name:
        outputs = [f"--python_out={name}", f"--pyi_out={name}"]
        if protoc.main(["protoc", f"-I{SOURCES}", *outputs, *map(str, protos)]) != 0:
            return 1
        for proto in protos:
            for suffix in (".py", ".pyi"):
                written = Path(name, f"{proto.stem}_pb2{suffix}")
                (GENERATED / written.name).write_text(head_of(proto) + written.read_text())
    return 0


def head_of(proto: Path) -> str:
    """The first lines of the modules that are made of it."""
    return f"{HEAD}# {hashlib.sha256(proto.read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    sys.exit(main())
