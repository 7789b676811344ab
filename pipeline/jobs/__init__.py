"""What jobs do: one module for each, which an engine imports when it is wanted."""
