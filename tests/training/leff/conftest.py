"""Lets the tests of this folder share `leff_models`; Flower sends nothing home."""

import os
import sys
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
sys.path.insert(0, str(Path(__file__).parent))
