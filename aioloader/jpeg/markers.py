"""Names of the JPEG markers that are read: the byte that follows 0xFF (ITU T.81, table B.1)."""

from __future__ import annotations

from typing import Final

SOF0: Final = 0xC0
"""Frame header, baseline."""
SOF1: Final = 0xC1
"""Frame header, extended sequential, Huffman coding."""
SOF2: Final = 0xC2
"""Frame header, progressive, Huffman coding."""
DHT: Final = 0xC4
RST0: Final = 0xD0
"""The first of eight restart markers; they are used in cyclic order."""
EOI: Final = 0xD9
SOS: Final = 0xDA
DQT: Final = 0xDB
DRI: Final = 0xDD
APP0: Final = 0xE0
APP1: Final = 0xE1
APP14: Final = 0xEE
APP15: Final = 0xEF
COM: Final = 0xFE

EXIF: Final = b"Exif\0\0"
"""First bytes of the body of an APP1 segment with an EXIF block."""
TABLE_MAGIC: Final = b"ALtiles\0"
"""First bytes of the body of a COM segment with a tile table (docs/format.md)."""
