"""Byte source of local files."""
