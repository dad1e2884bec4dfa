"""`python -m clover_engine.worker`: the model's process."""

from __future__ import annotations

import sys

from clover_engine.worker.serve import main

sys.exit(main())
