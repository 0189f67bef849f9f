"""`python -m waylab` is the command `waylab`."""

import sys

from waylab.cli import main

sys.exit(main())
