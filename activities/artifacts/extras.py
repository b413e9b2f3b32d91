"""Modules of sources and destinations whose libraries not every installation has."""

from importlib import import_module
from types import ModuleType

from activities.artifacts.sources.tar_streams import refused


def module_of_extra(package: str, module: str, extra: str) -> ModuleType:
    """The module, which is loaded on first use.

    extra: the installation's extra that brings its libraries.
    Raises: ApplicationError `Refused`, when this installation has not got it.
    """
    try:
        return import_module(f"{package}.{module}")
    except ImportError as error:
        raise refused(f"this platform is installed without its extra {extra}: {error}") from error
