"""The entry point of the `dragoman` command: what happens before its modules are there."""

import signal


def main() -> None:
    """Ctrl-C while modules are imported ends the process by that signal (a shell says 130), without a
    traceback: nothing has begun yet. Where it is ignored it stays so."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gateway.cli.main import main as command

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()
