"""Write a mutant as a package of its own and import it."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from pp4.errors import BadInputError, Code, Refusal, RefusedError, reason_of
from pp4.kernels.controls.edits import Mutant, apply
from pp4.kernels.controls.registry import MUTANTS

_KERNELS: Final = Path(__file__).parents[1]
_PRODUCT: Final = "pp4.kernels.device"


def product_sources() -> dict[str, str]:
    """Return the text of every file that a mutant copies, by its path below ``pp4/kernels``."""
    files = [_KERNELS / "sampled_fused.py", *sorted((_KERNELS / "device").glob("*.py"))]
    return {file.relative_to(_KERNELS).as_posix(): file.read_text("utf-8") for file in files}


def build(name: str, directory: Path) -> ModuleType:
    """Write a mutant below a directory, import it and return its ``sampled_fused``.

    The name of the package carries a digest of its text: two ranks that build the same mutant in
    the same place write the same bytes, and a stale copy is never taken for a new one.

    Args:
        name: a key of ``MUTANTS``.
        directory: where the copy may lie; it is made where it does not exist.

    Returns:
        A module whose ``_kernel`` is the mutant, interpreted or compiled as the product's is.

    Raises:
        BadInputError: no mutant has this name, or one of its edits does not fit the source.
        RefusedError: the copy cannot be written.
    """
    if name not in MUTANTS:
        raise BadInputError.of("control", f"one of {', '.join(MUTANTS)}", ascii(name[:60]))
    return build_mutant(MUTANTS[name], directory)


def build_mutant(mutant: Mutant, directory: Path) -> ModuleType:
    """Do the same as :func:`build` for a mutant that is not in the registry."""
    sources = apply(mutant, product_sources())
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()
    package = f"pp4_control_{mutant.name}_{digest[:12]}"
    home = directory.resolve() / package
    texts = {file: text.replace(_PRODUCT, f"{package}.device") for file, text in sources.items()}
    texts["__init__.py"] = f'"""{mutant.what}."""\n\nfrom {package} import sampled_fused\n'
    try:
        for file, text in texts.items():
            _write(home / file, text)
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNWRITABLE, str(home), "a directory for a mutant", reason_of(error))
        ) from error
    return _imported(package, home)


def _write(path: Path, text: str) -> None:
    """Put a file in place at once: another rank may be importing the same copy."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _imported(package: str, home: Path) -> ModuleType:
    loaded = sys.modules.get(package)
    if loaded is None or loaded.__file__ != str(home / "__init__.py"):
        loaded = _load(package, home)
    mutant: ModuleType = loaded.sampled_fused
    return mutant


def _load(package: str, home: Path) -> ModuleType:
    for name in [name for name in sys.modules if name.split(".", 1)[0] == package]:
        del sys.modules[name]
    spec = spec_from_file_location(
        package, home / "__init__.py", submodule_search_locations=[str(home)]
    )
    if spec is None or spec.loader is None:
        raise BadInputError.of("control", "a package that Python can import", str(home))
    module = module_from_spec(spec)
    sys.modules[package] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[package]
        raise
    return module
