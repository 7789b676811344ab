"""The endpoint that the flags of a command name."""

from dataclasses import dataclass
from typing import Final

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Contact:
    """`bootstrap` is HOST:PORT, or several separated by commas, of which the first that responds is used. SSL://
    before it means TLS, and so does any of the PEM files. Their paths are empty if not given."""

    bootstrap: str
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def protocol(self) -> str:
        """In capitals; empty if there is none."""
        return self.bootstrap.rpartition("://")[0].upper()

    @property
    def addresses(self) -> list[str]:
        return self.bootstrap.rpartition("://")[2].split(",")

    @property
    def names_tls_files(self) -> bool:
        return bool(self.tls_ca or self.tls_cert or self.tls_key)
