"""Client quotas: how much each user, client and address may use of this gateway."""
