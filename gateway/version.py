"""The version of this build."""

from importlib.metadata import PackageNotFoundError, version


def product_version() -> str:
    """Of the installed distribution; a source tree that was never installed has none."""
    try:
        return version("dragoman")
    except PackageNotFoundError:
        return "0+unknown"
