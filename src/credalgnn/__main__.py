"""``python -m credalgnn``."""

import sys

from .cli import main

sys.exit(main())
