"""The judge of generated images: in tests of its own and at night as for users, and otherwise after a few updates."""

import pytest

from tests import nightly
from wpriv.papers.tasks import _quality


@pytest.fixture(scope="module", autouse=True)
def quick_judge(request):
    with pytest.MonkeyPatch.context() as patch:
        if not (nightly.WHOLE or request.module.__name__.endswith("test_quality")):
            patch.setattr(_quality, "CNN_STEPS", 20)
        yield
