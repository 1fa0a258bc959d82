"""MDS sets, as `streaming` writes them."""
