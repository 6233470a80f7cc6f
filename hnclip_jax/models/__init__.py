"""The two towers. The only Flax room: all others see nested dicts of arrays and functions."""
