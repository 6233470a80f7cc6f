"""Shards of examples: how packed lists and data sets of tensorflow-datasets lie on disk."""
