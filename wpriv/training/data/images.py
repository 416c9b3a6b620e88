"""A folder of pictures, such as CelebA, cropped to a centred square and resized."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training.data import _classes
from wpriv.training.data._dataset import Array, Data
from wpriv.training.data._files import File, read_bytes, resolve_path
from wpriv.training.data._formats import square
from wpriv.training.data.arrays import of_arrays

ABOUT = "your own folder of pictures, such as CelebA's img_align_celeba"
GET = (
    "Give the path of a folder of .jpg or .png files, one sub-folder a class or all in one: --param folder=PATH "
    "(in a recipe, data: {name: images, folder: PATH}). "
    "CelebA: https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, with list_attr_celeba.txt for attributes."
)
ENDINGS = (".jpg", ".jpeg", ".png")
OTHERS = (".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".heic", ".heif", ".jfif", ".jp2", ".ppm", ".pgm")
MAX_BYTES = 16_000_000_000  # of all pictures, once read


@dataclass(frozen=True)
class Params(Parameters):
    """The folder, the size of the images, the source of the labels, and the test split."""

    folder: str = parameter("path of the folder, as it stands or below the data root")
    size: int = parameter("width and height of every picture once read", default=64, minimum=1)
    grey: bool = parameter("true: one channel of grey in the place of three of colour", default=False)
    classes: Sequence[object] | str = parameter(
        "names of the classes, one sub-folder each; read from the sub-folders where left out", default=""
    )
    crop: int = parameter("side of the square cut from the middle first; 0 takes the largest", default=0, minimum=0)
    attributes: str = parameter("a file like list_attr_celeba.txt, for labels from attributes", default="")
    attribute: str = parameter("the attribute that is the label: 1 where it has it, 0 elsewhere", default="")
    test_share: float = parameter("share of the pictures held out for testing", default=0.1, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 3, size, size] uint8 (one channel with ``grey``).

    Labels come from the attribute, else from the sub-folders, else all are 0. Where the folder has the sub-folders
    ``train`` and ``test``, these are the two parts; else a share of the pictures is held out.
    """
    classes = _classes.class_names(params.name, params.classes)
    folder = resolve_path(params.name, "folder", params.folder, root)
    parts = [] if params.attributes else _parts(folder)
    paths = [_pictures(part) for part in parts or [folder]]
    channels, count = 1 if params.grey else 3, sum(map(len, paths))
    if channels * params.size**2 * count > MAX_BYTES:
        raise UsageError(
            f"{count} pictures of {params.size} x {params.size} need more than {MAX_BYTES:,} bytes; "
            "choose a smaller size"
        )
    files: list[File] = []
    notes: tuple[str, ...] = ()
    if params.attributes:
        path = resolve_path(params.name, "file", params.attributes, root)
        raw = read_bytes(path)
        files.append(File.unverified(path, raw))
        names, *y = _labels_from_attribute(path, raw, params.attribute, paths[0])
    else:
        names, y = _labels_from_folders(parts or [folder], paths, classes)
        inferred = classes is None and len(names) > 1
        notes = ("the set of classes was read from the sub-folders: it is taken as public",) if inferred else ()
    digest = hashlib.sha256()
    records = [np.stack([_picture(path, params, digest) for path in part]) for part in paths]
    train, *tests = zip(records, y, strict=True)
    return of_arrays(
        f"{params.name}:{folder.name}",
        train,
        tests[0] if tests else None,
        source=str(folder),
        share=params.test_share,
        seed=params.split_seed,
        files=(File(folder, digest.hexdigest()), *files),
        names=names,
        notes=notes,
    )


def _parts(folder: Path) -> list[Path]:
    """Return the folders of training and of test pictures; nothing where the folder is not divided in this way."""
    try:
        inner = {path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    except OSError as error:
        raise FaultyRecords(f"{folder}: cannot be read ({error.strerror or error})") from None
    if not {"train", "test"} <= inner:
        return []
    if others := sorted(inner - {"train", "test"}):
        raise FaultyRecords(
            f"{folder / others[0]}: stands beside the folders train and test, and belongs to neither. Move it away, or "
            f"into one of them"
        )
    return [folder / "train", folder / "test"]


def _pictures(folder: Path) -> list[Path]:
    """Return the sorted paths of all pictures below a folder."""
    other = min((path for path in folder.rglob("*") if path.suffix.lower() in OTHERS and path.is_file()), default=None)
    if other is not None:
        raise FaultyRecords(
            f"{other}: pictures are read from {', '.join(ENDINGS)}, and this one would be left out. Save it as one of "
            f"them, or move it away"
        )
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise FaultyRecords(f"{folder}: wanted pictures ({', '.join(ENDINGS)}); found none. {GET}")
    filled = {path.relative_to(folder).parts[0] for path in paths}
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and inner.name not in filled and not inner.name.startswith("."):
            raise FaultyRecords(f"{inner}: wanted pictures ({', '.join(ENDINGS)}); found none. Remove the folder")
    return paths


def _picture(path: Path, params: Params, digest: hashlib._Hash) -> Array:
    """Return one picture as [1 or 3, size, size] bytes, and update the digest by the content of its file."""
    from PIL import Image, UnidentifiedImageError

    try:
        digest.update(path.read_bytes())
        with Image.open(path) as image:
            return square(image, str(path), size=params.size, grey=params.grey, crop=params.crop)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise FaultyRecords(f"{path}: not a complete picture ({error})") from None


def _labels_from_folders(
    folders: list[Path], paths: list[list[Path]], declared: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[Array]]:
    """Return the classes, which are the sub-folders of all parts, and the labels of the pictures of each part."""
    words = [
        [parts[0] if len(parts) > 1 else "" for parts in (path.relative_to(folder).parts for path in part)]
        for folder, part in zip(folders, paths, strict=True)
    ]
    names = sorted(set(words[0]))
    for folder, part in zip(folders, words, strict=True):
        if len(set(part)) > 1 and "" in part:
            raise FaultyRecords(
                f"{folder}: has pictures beside sub-folders; put all into sub-folders (one a class), or all into one "
                f"folder"
            )
        for word in sorted(set(part)):
            if word not in (declared or names):
                known = ", ".join((declared or names)[:12])
                raise FaultyRecords(
                    f"{folder / word}: the classes are {'declared as' if declared else 'those of training,'} {known}, "
                    f"and this folder is none of them. Declare it by classes, or move its pictures"
                )
    classes = declared or tuple(name or "picture" for name in names)
    return classes, [_classes.numbered(part, declared or names, str) for part in words]


def _labels_from_attribute(path: Path, raw: bytes, attribute: str, paths: list[Path]) -> tuple[tuple[str, ...], Array]:
    """Labels from a CelebA list: attributes in line 2, then lines of a file name with 1 or -1 for each."""
    try:
        lines = [line.split() for line in raw.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise FaultyRecords(f"{path}: cannot be read ({error})") from None
    header = lines[1] if len(lines) > 1 else []
    if attribute not in header:
        raise UsageError(f"{path}: no attribute called {attribute!r}; found {', '.join(header[:40]) or 'none'}")
    column = header.index(attribute) + 1
    values = {line[0]: line[column] for line in lines[2:] if len(line) == len(header) + 1}
    unlabelled = [p.name for p in paths if values.get(p.name) not in ("1", "-1")]
    if unlabelled:
        raise FaultyRecords(
            f"{path}: wanted 1 or -1 for every picture; found none for {len(unlabelled)}, such as {unlabelled[0]}"
        )
    labels = np.array([int(values[p.name] == "1") for p in paths], dtype=np.int64)
    return (f"not {attribute}", attribute), labels
