"""Byte source over local files."""
