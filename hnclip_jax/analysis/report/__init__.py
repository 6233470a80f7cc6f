"""The page about runs: one HTML file with its pictures beside it, which needs no network."""
