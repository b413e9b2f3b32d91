"""The lines of a file in pip's format: which further file each names, or why it is refused.

Each option is obeyed or refused. pip itself passes over some without a word, such as an option
behind the name of a package, or a folder of packages that is not there.
"""

from __future__ import annotations

import codecs
import posixpath
import re
import shlex
from collections.abc import Iterator

from ..errors import RefusedError

FIELD = "environment.requirements"
FILES = ("-r", "--requirement", "-c", "--constraint")
INDEXES = ("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links")
FLAGS = ("--pre", "--prefer-binary", "--no-index", "--require-hashes")
VALUED = ("--no-binary", "--only-binary", "--trusted-host", "--use-feature")
EDITABLE = ("-e", "--editable")
OF_A_PACKAGE = ("--hash", "--config-settings", "--config-setting", "-C", "--global-option")
ALONE = (*FILES, *INDEXES, *FLAGS, *VALUED, *EDITABLE)
"""The options that stand in lines of their own."""
LOCAL = re.compile(
    r"(\.{1,2}(/|\Z|\[)|/|(?i:([a-z]+\+)?file):|[\w.-]+/(?!/)|[^@:/]+@\s*((?i:([a-z]+\+)?file):|\.|/)"
    r"|[\w.+-]+\.(whl|zip|tgz|tar\.gz|tar\.bz2)(\s|;|\Z))"
)
COMMENT = re.compile(r"(^|\s)#.*$")
COMMENT_LINE = re.compile(r"\s*#")
VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # Before UTF-16, whose mark it begins with.
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""By which pip knows how a file is encoded, as PowerShell writes them."""
CODING = re.compile(rb"#.*?coding[:=]\s*([-\w.]+)")
CODINGS = ("utf-8", "ascii", "cp1252")
"""Those that a file may name, as pip lets it: in all of them options and ends of lines are written
the same. In ISO 8859 a byte ends a line that ends none elsewhere."""
MOST_QUOTED = 64 << 10
"""Of the options of a line with quotes; the time to read them grows by their square."""
IN_SETUP = "install it in environment.setup, such as `pip install %s`"


def refused(words: str) -> RefusedError:
    """The refusal of a file that cannot be used."""
    return RefusedError("requirements", "%s: %s" % (FIELD, words))


def named_files(name: str, content: bytes, shown: str | None = None) -> Iterator[tuple[str, str]]:
    """The files that a file of pip's format names, each with the place where it does.

    shown: the file of the code out of which this one was made, if it was made.
    Raises: RefusedError `requirements`, for a line that cannot be obeyed.
    """
    for number, text in _lines(name, content):
        place = "%s, line %d" % (name, number) if shown is None else shown
        for named in _files_of(place, text) if text else ():
            if "://" in named:  # It is not shown, because it may be secret.
                raise refused("%s: only files of the code can be named" % place)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), named))
            if path.startswith(("/", "../")):
                raise refused("%s: %s is not inside the code" % (place, named))
            yield path, place


def _lines(name: str, content: bytes) -> Iterator[tuple[int, str]]:
    """The lines as pip joins them, without comments, each with the number of its first one."""
    mark, encoding = next((one for one in MARKS if content.startswith(one[0])), (b"", ""))
    _check_coding(name, b"" if mark else content)
    text = content[len(mark) :].decode(encoding or "utf-8", "replace")
    joined: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        is_comment = COMMENT_LINE.match(line)
        if line.endswith("\\") and not is_comment:
            joined.append(line.strip("\\"))
            continue
        joined.append(" " + line if is_comment else line)
        yield first, COMMENT.sub("", "".join(joined)).strip()
        joined, first = [], 0
    yield first, COMMENT.sub("", "".join(joined)).strip()


def _check_coding(name: str, content: bytes) -> None:
    """Raises: RefusedError, for a file that pip would read as another text than is read here."""
    for line in content.split(b"\n", 2)[:2]:
        found = CODING.match(line)
        coding = found.group(1).decode() if found else "utf-8"
        try:
            is_known = codecs.lookup(coding).name in CODINGS
        except LookupError:
            is_known = False
        if not is_known:
            raise refused("%s: coding: %s: is none of %s" % (name, coding, ", ".join(CODINGS)))


def _files_of(place: str, line: str) -> Iterator[str]:
    """The files that a line names. Raises: RefusedError."""
    found = VARIABLE.search(line)
    if found:
        words = "%s: %s: a job's variables are not known yet where this is installed: %s"
        raise refused(words % (place, found.group(), IN_SETUP % "--index-url ..."))
    if LOCAL.match(line):
        words = "%s: %s is a folder or file of the code: %s"
        raise refused(words % (place, line, IN_SETUP % line))
    package, dash, rest = (" " + line).partition(" -")
    of_package = bool(package.strip())
    options = list(_options(place, _words(place, dash + rest), of_package))
    for option, value in options:
        _check(place, option, value)
        if option in FILES:
            if len(options) > 1:
                raise refused("%s: %s: write each option into a line of its own" % (place, option))
            yield value


def _words(place: str, text: str) -> list[str]:
    """The words of a line's options. Raises: RefusedError."""
    if not {"'", '"', "\\"} & set(text):
        return text.split()  # Much faster, and there may be a million hashes.
    if len(text) > MOST_QUOTED:
        words = "%s: has quotes in options of more than %d characters"
        raise refused(words % (place, MOST_QUOTED))
    try:
        return shlex.split(text)
    except ValueError as error:
        raise refused("%s: cannot be read: %s" % (place, error)) from error


def _options(place: str, words: list[str], of_package: bool) -> Iterator[tuple[str, str]]:
    """The options of a line, each with its value, empty where it has none. Raises: RefusedError."""
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-"):  # It is not shown, because it may be secret.
            raise refused("%s: has a word behind its options that belongs to none" % place)
        option, has_value, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            option, has_value, value = word[:2], "=", word[2:]
        if of_package and option in ALONE:
            raise refused("%s: %s: write it into a line of its own" % (place, option))
        known = OF_A_PACKAGE if of_package else ALONE
        if option not in known:
            words_ = "%s: %s is no option that is known here; these are: %s"
            raise refused(words_ % (place, option, ", ".join(known)))
        if option not in FLAGS:
            value = value if has_value else next(waiting, "")
            if not value:
                raise refused("%s: %s: its value is missing" % (place, option))
        yield option, value


def _check(place: str, option: str, value: str) -> None:
    """Raises: RefusedError, for an option whose value leads into the code."""
    if option in EDITABLE:
        words = "%s: %s: what is installed here is shared and read-only: %s"
        raise refused(words % (place, option, IN_SETUP % "-e ."))
    if option in INDEXES and not value.startswith(("https://", "http://")):
        words = "%s: %s: is no address that begins with https://; what lies in the code: %s"
        raise refused(words % (place, option, IN_SETUP % (option + " ...")))
