"""Recall: embed a list, rank, and say by which protocol."""
