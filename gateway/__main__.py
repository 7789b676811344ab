"""`python -m gateway`: the `dragoman` command, where its script is not on PATH."""

from gateway.cli.script import main

if __name__ == "__main__":
    main()
