"""Tars in WebDataset's layout."""
