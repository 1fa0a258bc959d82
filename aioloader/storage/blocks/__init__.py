"""Byte source for formats that store many samples as one block, such as the row groups of Parquet.

A block is read and decompressed as a whole, once, and kept in a bounded cache; items are rows of it. `item` is the
layout in which a row travels to a worker, `values` that of nested Python values. Only `parquet` knows the format, and
only in the loader's own process: workers do not import pyarrow.
"""
