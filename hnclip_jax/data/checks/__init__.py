"""What `hnclip data check`, `stats` and `leak` find, before a run."""
