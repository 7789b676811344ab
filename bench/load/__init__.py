"""Client processes of the bench: each does one kind of load and says what it saw."""
