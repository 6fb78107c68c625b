"""Experiments: single runs, continual runs, searches and diagnoses, on a parallel engine."""
