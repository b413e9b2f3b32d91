"""GPU names: the catalogue's name for what a person writes or a driver prints; GPU classes."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from workflows.rules.catalogue.gpu_models import CATALOGUE, GpuClass, GpuModel

MAX_GPUS_PER_WORKER = 64

_MAKERS = {"NVIDIA", "TESLA", "GEFORCE", "AMD", "INSTINCT"}
_MAKERS_WORDS = _MAKERS | {"GPU", "GRAPHICS", "ACCELERATOR", "CORPORATION"}
_MEMORY_KINDS = {"HBM2", "HBM2E", "HBM3", "HBM3E"}
_FORM_WORDS = _MEMORY_KINDS | {
    *("PCIE", "FHHL", "OAM", "GENERATION", "BLACKWELL", "WORKSTATION", "SERVER", "EDITION"),
    # AMD's words for several dies, cooling by air or liquid, a baseboard and a virtual function.
    *("MCM", "AC", "LC", "MBA", "VF"),
}
_FORM = re.compile(r"^(SXM\d*|\d+GB|X2)$")
_SXM_WORDS = frozenset(["HBM3", "HBM3E", "OAM", "H200", "B200", "B300", "GB200", "GH200"])
_MEMORY = re.compile(r"^(\d+)GB$")
_SHORT_FORM = re.compile(r"^(?P<name>.+?)(?::(?P<count>\d+))?$")
_CLASS_WORDS = (
    # First, because older names are `Radeon Instinct MI25`.
    (GpuClass.DATACENTER, ("TESLA", "INSTINCT")),
    (
        GpuClass.PROFESSIONAL,
        ("QUADRO", "RADEON PRO", "RADEON AI PRO", "FIREPRO", "RTX A", "RTX PRO", " ADA"),
    ),
    (GpuClass.CONSUMER, ("GEFORCE", "RADEON", "GTX", "RTX", "TITAN")),
)


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs of a short form such as `A100:4`; `cpu` has no name and a count of 0."""

    name: str | None
    count: int


def _words(name: str) -> list[str]:
    plain = re.sub(r"\((TM|R|MCM)\)", " ", name.upper())
    return [word for word in re.split(r"[\s\-_/]+", plain) if word]


def _key(words: Iterable[str]) -> str:
    key = "".join(word for word in words if word not in _MAKERS_WORDS)
    if key.startswith("INSTINCTMI"):  # As Vast.ai writes it, in one word.
        return key.removeprefix("INSTINCT")
    return key.removeprefix("RADEON") if key.startswith(("RADEONRX", "RADEONMI")) else key


def _plain(words: Iterable[str]) -> list[str]:
    """The words of a name without the form of the board and its memory size."""
    return [word for word in words if word not in _FORM_WORDS and not _FORM.match(word)]


def _key_without_form(words: Sequence[str]) -> str:
    return _key([*_plain(words), *(word for word in words if _MEMORY.match(word))])


def _spellings(model: GpuModel) -> set[str]:
    names = {model.name, *model.aliases}
    if not _MEMORY.search(_words(model.name)[-1]):
        names.add(f"{model.name}-{model.memory_gb}GB")
    return {_key(_words(name)) for name in names}


_BY_NAME = {model.name: model for model in CATALOGUE}
_BY_KEY = {key: model for model in CATALOGUE for key in _spellings(model)}


def model_of(name: str) -> GpuModel | None:
    """The catalogue's entry of a canonical name; None: there is none."""
    return _BY_NAME.get(name)


def canonical_name(written: str, known: Collection[str] = ()) -> str | None:
    """The one name for what a person wrote, or None.

    known: names outside the catalogue that a node of the platform has: these pass through.
    """
    model = _model_of(written)
    if model is not None:
        return model.name
    return next((name for name in known if is_same_model(name, written)), None)


def known_names(written: str, known: Collection[str] = ()) -> tuple[str, ...]:
    """The names that placement compares for what a person wrote: the catalogue's one.

    A name without an entry may be spelled otherwise by each of the nodes and marketplaces that have
    such GPUs: then all of `known` that are meant, or else the name as it was written.
    """
    model = _model_of(written)
    if model is not None:
        return (model.name,)
    return tuple(sorted(name for name in known if is_same_model(name, written))) or (written,)


def is_same_model(name: str, other: str) -> bool:
    """Whether two names mean one GPU model: `NVIDIA RTX 9999` is marketplaces' `RTX 9999`."""
    return name == other or _key(_words(name)) == _key(_words(other))


def _model_of(written: str) -> GpuModel | None:
    words = _words(written)
    return _BY_KEY.get(_key(words)) or _BY_KEY.get(_key_without_form(words))


@lru_cache(maxsize=4096)
def gpu_type_of_driver_name(printed: str) -> str:
    """The catalogue's name for what the driver prints (`NVIDIA A100-SXM4-80GB`: `A100-80GB`).

    A name without an entry stays as it was printed, trimmed.
    """
    words = _words(printed)
    for key in (_key_without_form(words), _key(_plain(words))):
        if key in _BY_KEY:
            return _BY_KEY[key].name
    return " ".join(printed.split())


def is_sxm(printed: str) -> bool:
    """Whether the GPU sits on an SXM board (its PCIe lanes say nothing of its links)."""
    words = set(_words(printed))
    if words & {"NVL", "PCIE"}:
        return False
    return bool(words & _SXM_WORDS) or any(word.startswith("SXM") for word in words)


@lru_cache(maxsize=4096)
def gpu_class(gpu_type: str) -> GpuClass:
    """The fee class of a type; what is not in the catalogue goes by its words.

    A name that says nothing counts as consumer, the lowest fee: nobody pays more for our ignorance.
    """
    model = _BY_NAME.get(gpu_type)
    if model is not None:
        return model.gpu_class
    parts = (_BY_KEY.get(word) for word in _words(gpu_type))
    part = next((model for model in parts if model is not None), None)
    if part is not None:
        return part.gpu_class
    upper = " ".join(_words(gpu_type))
    for kind, words in _CLASS_WORDS:
        if any(word in upper for word in words):
            return kind
    return GpuClass.CONSUMER


@lru_cache(maxsize=4096)
def accepted_types(asked: tuple[str, ...]) -> frozenset[str]:
    """Every GPU type that serves one of the asked ones: `A100` also takes an `A100-80GB`."""
    larger = (model.name for model in CATALOGUE if model.family in asked)
    return frozenset((*asked, *larger))


def near_names(written: str, known: Collection[str] = ()) -> tuple[str, ...]:
    """At most three names that the writer may have meant, nearest first."""
    names = {_key(_words(name)): name for name in known}
    names |= {key: model.name for key, model in _BY_KEY.items()}
    by_look = {key.replace("O", "0"): name for key, name in names.items()}
    look = _key(_words(written)).replace("O", "0")
    found = [by_look[key] for key in get_close_matches(look, by_look, n=6, cutoff=0.6)]
    return tuple(dict.fromkeys(found))[:3]


def unknown_name_rule(written: str, known: Collection[str] = ()) -> str:
    """The sentence for a name that neither the catalogue nor a node has."""
    near = near_names(written, known)
    if not near:
        return f"no GPU type is called {written}"
    return f"no GPU type is called {written}; did you mean {' or '.join(near)}?"


def parse_gpus(short_form: str) -> GpuRequest:
    """Read `cpu`, `TYPE` (one of it) or `TYPE:COUNT`; the name stays as it was written.

    Raises: ValueError with the rule that was broken.
    """
    written = short_form.strip()
    if len(written) > 100:
        raise ValueError("is at most 100 characters")
    if written.lower() == "cpu":
        return GpuRequest(None, 0)
    match = _SHORT_FORM.match(written)
    if not match or ":" in match["name"]:
        raise ValueError("is `cpu`, TYPE or TYPE:COUNT, such as A100:4")
    count = int(match["count"] or 1)
    if not 1 <= count <= MAX_GPUS_PER_WORKER:
        raise ValueError(f"COUNT is 1 to {MAX_GPUS_PER_WORKER}")
    return GpuRequest(match["name"].strip(), count)
