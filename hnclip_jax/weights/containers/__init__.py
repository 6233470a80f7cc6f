"""Safetensors, torch zips, TorchScript, old pickles, shards: bytes -> arrays, none executed."""
