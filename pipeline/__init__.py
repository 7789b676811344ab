"""Jobs that rewrite what is stored, in processes of their own; what they change they ask a gateway for."""
