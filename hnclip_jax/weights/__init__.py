"""Files of weights <-> flat dicts of numpy arrays; knows no model."""
