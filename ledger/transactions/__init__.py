"""Transactions of producers, as KIP-98, KIP-360 and KIP-890 have them."""
