"""Documentation of Python packages for a small language model: a public part, and one that is taken as private."""

from __future__ import annotations

import hashlib
import lzma
from dataclasses import dataclass
from pathlib import Path

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import MissingResource
from wpriv.training.data._dataset import Data, random_split
from wpriv.training.data.text import documents_of_json, of_documents

ABOUT = "docstrings of SciPy as private text, help topics of Python as public text"
SOURCE = "the SciPy developers: docstrings of SciPy 1.17.1, an extract; the help topics of the running Python"
GET = "They are installed with wpriv and with Python; install wpriv again if the file is missing."
FILE = Path(__file__).with_name("docstrings.jsonl.xz")  # licence and origin: docstrings.LICENSE.txt
SHA256 = "88e55ba6741c75dfce7d7f442112541dd9c4d46bd5420cf4496155dab7dfc589"  # of the unpacked file


@dataclass(frozen=True)
class Params(Parameters):
    """The part to train on, the length of a record, and the documents held out."""

    part: str = parameter("private (SciPy) or public (Python)", default="private", choices=("private", "public"))
    length: int = parameter("characters of a record", default=64, minimum=2)
    test_share: float = parameter("share of SciPy's documents held out for testing", default=0.1, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return records of [N, length] characters, see ``text.of_documents``; ``root`` is not used.

    Both parts are tested on the same documents of SciPy, so that a network trained on the public part can be compared
    with one that has seen the private part.

    Raises:
        MissingResource: the file in the package is missing or damaged.
    """
    documents = documents_of_json(str(FILE), _packaged().splitlines())
    train, test = random_split(len(documents), params.test_share, params.split_seed)
    held_out = [documents[place] for place in test]
    if params.part == "public":
        from pydoc_data.topics import topics

        return of_documents(f"{params.name}:public", list(topics.values()), held_out, params.length, source=SOURCE)
    return of_documents(params.name, [documents[place] for place in train], held_out, params.length, source=SOURCE)


def _packaged() -> str:
    """The unpacked content of the file."""
    try:
        content = lzma.decompress(FILE.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise MissingResource(f"{FILE}: cannot be read ({error}). Install wpriv again") from None
    if (digest := hashlib.sha256(content).hexdigest()) != SHA256:
        raise MissingResource(f"{FILE}: wanted content with SHA-256 {SHA256}; found {digest}. Install wpriv again")
    return content.decode()
