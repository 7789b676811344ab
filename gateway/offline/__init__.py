"""Work on a ledger that no gateway uses: backup and restore, checks, inspection."""
