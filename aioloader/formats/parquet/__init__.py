"""Parquet files, read by row group."""
