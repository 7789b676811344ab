"""gRPC of the stores that speak it: channels, and the messages that are needed."""
