"""Shared by handlers: a request's context, audit events, throttling, the sizes of responses."""
