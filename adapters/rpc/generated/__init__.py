"""Messages out of `adapters/rpc/*.proto`, written by tools/generate_protobuf.py."""
