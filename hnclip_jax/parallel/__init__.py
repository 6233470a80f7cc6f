"""Devices: the mesh, and what lies where on it."""
