"""The other systems of the paper's tables, one file each."""
