"""Where the project lies, and the golden points: values computed independently of this package."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
POINTS = json.loads((ROOT / "tests" / "golden" / "golden.json").read_text())["points"]
GOLDEN = {point["id"]: point for point in POINTS}
