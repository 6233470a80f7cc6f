"""One file per command: takes flags or a config, builds the rooms, calls them."""
