"""The schema of the key ``data`` of trainings: which records are read, and how many of them."""

from __future__ import annotations

from typing import Any

from wpriv.config.field_types import Count, LocalNoise, OwnCode, Word, optional

REPORTS = "privatized"
"""The reader of files that ``wpriv privatize`` wrote."""


class DataSet(OwnCode):
    """The data set of a training: a reader in ``wpriv/data`` or in a file of the user's, and where to look."""

    file: Word | None = optional(
        "for readers of your own files, the path of one; or a Python file of your own (.py) that defines "
        "the name, a function that returns the records; it is run",
    )

    root: Word | None = optional("folder to look in before $WPRIV_DATA and the system's places")
    records: Count | None = optional("size of the training set that the recipe counts on; another one found is refused")
    limit: Count | None = optional("take only the first so many training records (and test records)")
    first: Count | None = optional("take only the first so many training records, and all test records")
    privatize: LocalNoise | None = optional(
        "put noise on the training records first, as wpriv privatize does; for experiments",
    )

    @property
    def noisy(self) -> bool:
        """Tell whether the training records are reports of ``wpriv privatize``, or get such noise first."""
        return self.privatize is not None or (self.name == REPORTS and not self.own)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the reader."""
        path = {} if self.file is None or self.own else {"file": self.file}
        return {**path, **super().parameters()}
