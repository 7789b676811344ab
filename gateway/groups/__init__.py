"""Consumer groups of the classic protocol: a pure machine for each group, and the room that drives them."""
