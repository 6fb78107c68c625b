"""Parts that several rivals share."""
