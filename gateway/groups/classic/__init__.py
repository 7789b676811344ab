"""The classic group protocol (KIP-345, KIP-394): one pure state machine a group."""
