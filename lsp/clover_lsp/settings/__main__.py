"""`python -m clover_lsp.settings`: the settings' documentation in its three forms."""

from __future__ import annotations

import sys

from clover_lsp.settings.docs import main

sys.exit(main())
