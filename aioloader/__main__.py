"""`python -m aioloader`."""

import sys

from aioloader.cli import main

sys.exit(main())
