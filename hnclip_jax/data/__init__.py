"""Lists, pictures, captions and batches: numpy only, never a device."""
