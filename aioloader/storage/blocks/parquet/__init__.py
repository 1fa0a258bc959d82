"""Blocks of Parquet files: row groups, or slices of large ones. Needs pyarrow (extra `parquet`).

Source of the format: the specification of Apache Parquet (https://parquet.apache.org/docs/file-format/) and its
`parquet.thrift`. pyarrow parses and decompresses; this package decides which bytes it gets, and checks their sizes
before.
"""
