"""The formats of names in a submission: packages, images, variables, references to secrets."""

import re

NAME_RULE = "is 1 to 100 printable characters, without blanks at its ends"
VARIABLE_RULE = "names are letters, digits and underscores, do not start with a digit or BASELOAD_"
PYTHON_REQUIREMENT_RULE = (
    "is a package by name, such as scikit-learn or torch>=2.4 (PEP 508), at most 100 characters"
)
APT_PACKAGE_RULE = "is the exact name of a Debian package, such as ffmpeg"
REQUIREMENTS_RULE = (
    "is a file inside the code folder: a requirements.txt, pyproject.toml, uv.lock, pylock.toml or "
    "environment.yml"
)
IMAGE_RULE = "is an image reference, such as pytorch/pytorch:latest or ghcr.io/owner/name:1"
SECRET_RULE = "is the name of a secret of the job's project, or store://projects/<project>/<name>"  # noqa: S105 - a rule, no secret

_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PROJECT_SECRET = re.compile(rf"store://projects/(prj-[a-z0-9]+)/({_SECRET_NAME.pattern})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Blanks follow a token and never another repeat of blanks, so that a match takes linear time.
# (Possessive repeats would say the same, but Python 3.11.2 matches groups of them wrongly.)
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+\s*"
_VERSIONS = rf"{_VERSION}(?:,\s*{_VERSION})*"
_PYTHON_REQUIREMENT = re.compile(
    r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*\s*"
    r"(?:\[[A-Za-z0-9._,\s-]*\]\s*)?"
    rf"(?:{_VERSIONS}|\(\s*{_VERSIONS}\)\s*)?"
    r"(?:;[^;\r\n]+)?"
)
_APT_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]")
_REQUIREMENTS = re.compile(
    r"[^/]+\.(?:txt|in|ya?ml)|pyproject\.toml|uv\.lock|pylock\.(?:[^./]+\.)?toml"
)
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


def is_name(text: str) -> bool:
    return 1 <= len(text) <= 100 and text.isprintable() and text == text.strip()


def is_variable_name(text: str) -> bool:
    """Whether the text is a POSIX name that the platform does not set itself."""
    if len(text) > 256 or text.upper().startswith("BASELOAD_"):
        return False
    return _VARIABLE.fullmatch(text) is not None


def is_python_requirement(text: str) -> bool:
    """Whether the text is a PEP 508 requirement by name, without address, path or option."""
    return len(text) <= 100 and _PYTHON_REQUIREMENT.fullmatch(text) is not None


def is_apt_package(text: str) -> bool:
    """Whether the text is a package's name, which apt cannot take for a removal or a version."""
    return len(text) <= 200 and _APT_PACKAGE.fullmatch(text) is not None


def is_requirements_file(text: str) -> bool:
    """Whether the text is a path inside the code folder, of a kind of file that a node can read."""
    folders = text.split("/")
    is_inside = text.isprintable() and not {"", ".", ".."} & set(folders) and "\\" not in text
    return is_inside and len(text) <= 200 and _REQUIREMENTS.fullmatch(folders[-1]) is not None


def is_image(text: str) -> bool:
    return len(text) <= 255 and _IMAGE.fullmatch(text) is not None


def full_image(text: str) -> str:
    """An image reference with its registry: docker.io, as elsewhere, where it names none."""
    first, slash, _ = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return text
    return f"docker.io/{text}" if slash else f"docker.io/library/{text}"


def is_secret_reference(text: str) -> bool:
    return is_secret_name(text) or _PROJECT_SECRET.fullmatch(text) is not None


def is_secret_name(text: str) -> bool:
    """Whether a text is a name alone, which means a secret of the job's own project."""
    return _SECRET_NAME.fullmatch(text) is not None


def secret_reference(project_id: str, text: str) -> str:
    """The whole reference of a name alone; any other text is returned as it is."""
    return f"store://projects/{project_id}/{text}" if is_secret_name(text) else text


def project_of_secret(reference: str) -> str | None:
    """The project whose secret a reference names; None: the text is no such reference."""
    match = _PROJECT_SECRET.fullmatch(reference)
    return match[1] if match else None
