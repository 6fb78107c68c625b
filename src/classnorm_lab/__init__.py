"""The laboratory: the paper regenerated, and every other system of its tables."""
