"""Documents of text, cut into records of equally many characters, each a token of a public alphabet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training.data._dataset import Array, Data, random_split
from wpriv.training.data._files import File, read_bytes, resolve_path

ABOUT = "your own documents, as records of characters for a language model"
GET = (
    "Give the path of a .txt file with a document a line, of a .jsonl file whose lines have the key text, or of a "
    "folder of .txt files: --param file=PATH (in a recipe, data: {name: text, file: PATH})."
)
ENDINGS = (".txt", ".jsonl")
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""The characters that are tokens, in their order: the line feed, and printable ASCII. Others are read as ``?``."""


@dataclass(frozen=True)
class Params(Parameters):
    """The documents, the length of a record, and the documents held out."""

    file: str = parameter("path of a .txt or .jsonl file or of a folder of .txt files")
    length: int = parameter("characters of a record", default=64, minimum=2)
    test_share: float = parameter("share of the documents held out for testing", default=0.1, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return records of the documents in a file or a folder, as ``of_documents`` cuts them."""
    is_file = params.file.removesuffix(".gz").endswith(ENDINGS)
    path = resolve_path(params.name, "file" if is_file else "folder", params.file, root)
    documents, files = (_file if is_file else _folder)(path)
    train, test = random_split(len(documents), params.test_share, params.split_seed)
    parts = [[documents[place] for place in places] for places in (train, test)]
    return of_documents(f"{params.name}:{path.stem}", parts[0], parts[1], params.length, source=str(path), files=files)


def of_documents(
    name: str, train: Sequence[str], test: Sequence[str], length: int, *, source: str, files: Sequence[File] = ()
) -> Data:
    """Cut documents into records of ``length`` characters, from the beginning of each; none spans two documents.

    The last characters of a document that fill no record are left out, and so is a document shorter than one.

    Args:
        name: of the data set. train, test: the documents to train and to test on.
        length: characters of a record, at least 2.
        source, files: see ``Data``.
    Returns:
        x: [N, length] int64, the places of the characters in ``ALPHABET``. There are no targets: y is 0.
    Raises:
        FaultyRecords: no training document has ``length`` characters.
    """
    x, x_test = (_records(documents, length) for documents in (train, test))
    if not len(x):
        raise FaultyRecords(f"{name}: no document has {length} characters; give longer ones, or a smaller length")
    return Data(
        name=name,
        x_train=x,
        y_train=np.zeros(len(x), np.int64),
        x_test=x_test,
        y_test=np.zeros(len(x_test), np.int64),
        classes=("text",),
        source=source,
        files=tuple(files),
        vocabulary=len(ALPHABET),
    )


def _records(documents: Sequence[str], length: int) -> Array:
    """The records of some documents, [N, length] places in the alphabet."""
    places = np.full(128, ALPHABET.index("?"), np.int64)
    places[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
    rows = [np.zeros((0, length), np.int64)]
    for document in documents:
        codes = np.frombuffer(document.encode("ascii", "replace"), np.uint8)
        count = len(codes) // length
        rows.append(places[codes[: count * length]].reshape(count, length))
    return np.concatenate(rows)


def _folder(path: Path) -> tuple[list[str], list[File]]:
    """The documents of a folder of .txt files, in the order of their names."""
    paths = sorted(path.rglob("*.txt"))
    if not paths:
        raise UsageError(f"{path}: wanted .txt files, one a document; found none")
    contents = [(each, read_bytes(each)) for each in paths]
    return [_decoded(*each) for each in contents], [File.unverified(*each) for each in contents]


def _file(path: Path) -> tuple[list[str], list[File]]:
    """The documents of a .txt file, a document a line, or of a .jsonl file."""
    content = read_bytes(path)
    lines = _decoded(path, content).splitlines()
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        lines = documents_of_json(str(path), lines)
    return lines, [File.unverified(path, content)]


def documents_of_json(name: str, lines: Sequence[str]) -> list[str]:
    """Return the text of each line of a .jsonl file, which is a mapping with the key ``text``.

    Raises:
        FaultyRecords: a line is none; the message has its number.
    """
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            raise FaultyRecords(f'{name}:{number}: wanted {{"text": "..."}}; found {line[:40]!r}')
        documents.append(entry["text"])
    return documents


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FaultyRecords(f"{path}: wanted text in UTF-8; found another byte at {error.start}") from None
