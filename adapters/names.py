"""The keys that a store accepts, the same in every backend."""

MAX_KEY_BYTES = 1024
MAX_COMPONENT_BYTES = 200


def check_metadata_key(key: str) -> str:
    """The key. ValueError unless it is 1 to 1024 bytes of UTF-8 without NUL."""
    if not 0 < len(key.encode()) <= MAX_KEY_BYTES or "\0" in key:
        raise ValueError(f"metadata key {key!r}: 1 to {MAX_KEY_BYTES} bytes without NUL are allowed")
    return key


def check_blob_key(key: str) -> str:
    """The key. ValueError unless it is a relative `/`-separated path whose components are 1 to 200 bytes
    long and do not begin with a dot (the stores use such names themselves)."""
    check_metadata_key(key)
    for component in key.split("/"):
        if not 0 < len(component.encode()) <= MAX_COMPONENT_BYTES or component.startswith("."):
            raise ValueError(f"blob key {key!r}: {component!r} cannot be a part of it")
    return key
