"""Measurements of a running loader: traces, timelines, derived metrics, lag and progress bars."""
