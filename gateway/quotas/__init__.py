"""The quotas room: how much each user, client and address may ask of this gateway."""
