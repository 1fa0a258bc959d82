"""Lists of images."""
