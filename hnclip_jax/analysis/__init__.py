"""Pictures of lists and of what training does."""
