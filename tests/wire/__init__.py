"""The wire: primitives, headers, messages, framing and connection rules."""
