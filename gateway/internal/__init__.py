"""The internal listener: a Unix socket or TLS, for jobs that rewrite what is stored; and its APIs."""
