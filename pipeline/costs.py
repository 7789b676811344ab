"""What the requests of a job cost, in dollars, at the list prices of Amazon S3."""

from typing import Final

USD_A_READ: Final = 0.0004 / 1000
USD_A_WRITE: Final = 0.005 / 1000
"""A GET and a PUT of S3 Standard, us-east-1. Transfers within the region are free."""
BILLED: Final = "s3:"


def dollars(data_url: str, reads: int, writes: int) -> float:
    """Of requests to the store of this URL. What is not in a bucket costs nothing a request."""
    if not data_url.startswith(BILLED):
        return 0.0
    return reads * USD_A_READ + writes * USD_A_WRITE
