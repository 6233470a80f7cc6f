"""List formats: bytes on disk -> rows of a picture and its captions, before any policy."""
