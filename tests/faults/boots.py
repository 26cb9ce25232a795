"""Another boot of this machine, for whatever is started in it: a kernel that names another id."""

import os
import shutil
import subprocess

import pytest

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_IN_IT = f'mount --bind "$1" {BOOT_ID} && shift && exec "$@"'


def another_boot(place):
    """What an argument list begins with to run in another boot than this one, and its id."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare to show another boot")
    file, boot = place / "boot_id", "00000000-0000-4000-8000-0000000000b0"
    file.write_text(f"{boot}\n")
    prefix = ["unshare", "--mount", "sh", "-c", _IN_IT, "sh", str(file)]
    found = subprocess.run([*prefix, "cat", BOOT_ID], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"no mount namespace here: {found.stderr.strip()}")
    if found.stdout.strip() != boot:
        raise AssertionError(found.stdout)
    return prefix, boot
