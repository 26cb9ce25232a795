"""The files of a package in one stream of bytes that depends on nothing but them."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.staged_files import LARGEST, NAME
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import Source, sha256_hex

# what every kind of tar can hold in one field, "pp4/" included
_LONGEST = 96


def bundle(source: Source, root: Path) -> bytes:
    """Return a tar behind gzip that holds the files of a source below ``pp4/`` and nothing else.

    Order, times, owners and permissions are always the same, so its sha256 names its content.

    Args:
        source: what to pack; its digests are checked while its files are read.
        root: the directory of the package.

    Raises:
        RefusedError: ``NOT_STAGED``, a file is not what it was when the source was hashed, or has a
            name that no receiving host would take, or all of them are too large; ``UNREADABLE``.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, digest in sorted(source.files):
            content = _content(root / path, path, digest)
            member = tarfile.TarInfo(f"pp4/{path}")
            # TarInfo's own defaults: time, owner and group 0, no names of them
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    raw = packed.getvalue()
    if len(raw) > LARGEST:
        raise _refused(root, f"at most {LARGEST} bytes of source", f"{len(raw)} bytes")
    return gzip.compress(raw, mtime=0)


def _content(file: Path, path: str, digest: str) -> bytes:
    if not NAME.fullmatch(f"pp4/{path}") or len(path) > _LONGEST:
        expected = f"a name of at most {_LONGEST} letters, digits and _ that ends in .py"
        raise _refused(file, expected, path)
    content = read_file(file)
    found = sha256_hex(content)
    if found != digest:
        raise _refused(file, f"sha256 {digest}, as when the source was hashed", f"sha256 {found}")
    return content


def _refused(file: Path, expected: str, found: str) -> RefusedError:
    return RefusedError(Refusal(Code.NOT_STAGED, shown(str(file)), expected, shown(found)))
