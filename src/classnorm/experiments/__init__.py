"""Experiments and their results: what is run, the folder it leaves, and how results are found again."""
