"""Message classes and schemas, one module an API. Written by tools/generate_messages.py; never by hand."""
