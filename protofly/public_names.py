"""The public names of a package, imported on first use.

An `__init__.py` lists what others may use of its package. If it imported those names itself, an import of one module
of the package would load all of them: a worker process the cryptography, `--help` the network. So a name is imported
when somebody asks for it (PEP 562). Type checkers read the same imports under `TYPE_CHECKING`; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def public_names(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    Args:
        package: Name of the package.
        names: Its public names, and for each the module that defines it: `{"Sandbox": "sandbox.host"}`.

    The function that is returned raises AttributeError for all other names.
    """

    def named(name: str) -> object:
        module = names.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return named
