"""Measurements of a running loader: traces, derived metrics, lag and progress bars."""
