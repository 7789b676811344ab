"""What an offset is: values, ports, state machines and byte formats; no sockets, no clock, no backend."""
