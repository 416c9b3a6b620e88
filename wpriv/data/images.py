"""A folder of pictures, such as CelebA, cropped to a centred square and resized."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._dataset import Array, Data, random_split
from wpriv.data._files import File, resolve_path
from wpriv.errors import MissingResource, UsageError

ABOUT = "your own folder of pictures, such as CelebA's img_align_celeba"
GET = (
    "Give the path of a folder of .jpg or .png files, one sub-folder a class or all in one: --param folder=PATH. "
    "CelebA: https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, with list_attr_celeba.txt for attributes."
)
ENDINGS = (".jpg", ".jpeg", ".png")
MAX_PIXELS = 50_000_000  # of one picture
MAX_BYTES = 16_000_000_000  # of all pictures, once read


@dataclass(frozen=True)
class Params(Parameters):
    """The folder, the size of the images, the source of the labels, and the test split."""

    folder: str = parameter("path of the folder, as it stands or below the data root")
    size: int = parameter("width and height of every picture once read", default=64, minimum=1)
    crop: int = parameter("side of the square cut from the middle first; 0 takes the largest", default=0, minimum=0)
    attributes: str = parameter("a file like list_attr_celeba.txt, for labels from attributes", default="")
    attribute: str = parameter("the attribute that is the label: 1 where it has it, 0 elsewhere", default="")
    test_share: float = parameter("share of the pictures held out for testing", default=0.1, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 3, size, size] uint8; labels from the attribute, else from the sorted sub-folders, else all 0."""
    folder = resolve_path(params.name, "folder", params.folder, root)
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not paths:
        raise MissingResource(f"{folder}: wanted pictures ({', '.join(ENDINGS)}); found none. {GET}")
    if 3 * params.size**2 * len(paths) > MAX_BYTES:
        raise UsageError(
            f"{len(paths)} pictures of {params.size} x {params.size} need more than {MAX_BYTES:,} bytes; "
            "choose a smaller size"
        )
    if params.attributes:
        classes, y = _labels_from_attribute(root, params, paths)
    else:
        classes, y = _labels_from_folders(folder, paths)
    digest = hashlib.sha256()
    x = np.stack([_picture(path, params, digest) for path in paths])
    train, test = random_split(len(x), params.test_share, params.split_seed)
    file = File(folder, digest.hexdigest())
    return Data(f"{params.name}:{folder.name}", x[train], y[train], x[test], y[test], classes, str(folder), (file,))


def _picture(path: Path, params: Params, digest: hashlib._Hash) -> Array:
    """Return one picture as [3, size, size] bytes, and update the digest by the content of its file."""
    from PIL import Image, UnidentifiedImageError

    try:
        digest.update(path.read_bytes())
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise MissingResource(
                    f"{path}: has {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read"
                )
            side = params.crop or min(image.size)
            if side > min(image.size):
                raise MissingResource(
                    f"{path}: {image.width} x {image.height} pixels are too few for a crop of {side}; "
                    "choose a smaller crop"
                )
            left, top = (image.width - side) // 2, (image.height - side) // 2
            # cropped before it is resized, so that the filter uses no pixels beyond the edges
            square = image.convert("RGB").crop((left, top, left + side, top + side))
            small = square.resize((params.size, params.size), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise MissingResource(f"{path}: not a complete picture ({error})") from None
    return np.asarray(small, np.uint8).transpose(2, 0, 1)


def _labels_from_folders(folder: Path, paths: list[Path]) -> tuple[tuple[str, ...], Array]:
    """Return the classes, which are the sub-folders, and the label of each picture."""
    parts = [path.relative_to(folder).parts for path in paths]
    subfolders = [part[0] if len(part) > 1 else "" for part in parts]
    names = sorted(set(subfolders))
    if len(names) > 1 and "" in names:
        raise MissingResource(
            f"{folder}: has pictures beside sub-folders; put all into sub-folders (one a class), or all into one folder"
        )
    return tuple(name or "picture" for name in names), np.array([names.index(n) for n in subfolders], dtype=np.int64)


def _labels_from_attribute(root: Path | None, params: Params, paths: list[Path]) -> tuple[tuple[str, ...], Array]:
    """Return labels from a list in the format of CelebA.

    Its second line names the attributes; each further line has a file name and 1 or -1 for each attribute.
    """
    path = resolve_path(params.name, "file", params.attributes, root)
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise MissingResource(f"{path}: cannot be read ({error})") from None
    header = lines[1] if len(lines) > 1 else []
    if params.attribute not in header:
        raise UsageError(f"{path}: no attribute called {params.attribute!r}; found {', '.join(header[:40]) or 'none'}")
    column = header.index(params.attribute) + 1
    values = {line[0]: line[column] for line in lines[2:] if len(line) == len(header) + 1}
    unlabelled = [p.name for p in paths if values.get(p.name) not in ("1", "-1")]
    if unlabelled:
        raise MissingResource(
            f"{path}: wanted 1 or -1 for every picture; found none for {len(unlabelled)}, such as {unlabelled[0]}"
        )
    labels = np.array([int(values[p.name] == "1") for p in paths], dtype=np.int64)
    return (f"not {params.attribute}", params.attribute), labels
