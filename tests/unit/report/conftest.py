"""The whole chain of evidence of a measurement, once for all tests of a worker."""

import pytest

from pp4.report.page import page
from tests.unit.report.documents import of_bytes, of_files
from tests.unit.report.hostile import hostile_half
from tests.unit.report.measured import made


@pytest.fixture(scope="session")
def chain(tmp_path_factory):
    """Paths of all receipts by name."""
    return made().write(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="session")
def whole(chain):
    """The document of all of them."""
    return of_files(list(chain.values()))


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory):
    """The page of a half whose texts mean harm, as a file."""
    directory = tmp_path_factory.mktemp("hostile")
    path = directory / "page.html"
    path.write_bytes(page(of_bytes(directory, half=hostile_half())))
    return path


@pytest.fixture(scope="session")
def page_file(whole, tmp_path_factory):
    """Its page as a file."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_bytes(page(whole))
    return path
