"""The session of a command: the way to the API, the common options and the exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer
from typer.core import TyperCommand

from baseload.commands.command_index import INTERRUPTED, NEGATIVE, REFUSED, UNREACHABLE, USAGE
from baseload.commands.terminal import Screen
from baseload.errors import ApiError, BaseloadError, ConfigurationError, UnreachableError

if TYPE_CHECKING:
    from baseload._sync.transport import Transport
    from baseload.calls import Call

P = ParamSpec("P")
Document = dict[str, Any]


class NegativeError(BaseloadError):
    """The answer is no, or a wait did not reach its goal. The command exits with 1."""


class MistakeError(BaseloadError):
    """An argument, a file or a setting is wrong. The command exits with 2."""


class Session:
    """The session of one run of a command: its output and its calls of the API."""

    def __init__(
        self, *, as_json: bool, url: str | None, account_id: str | None, profile: str | None = None
    ) -> None:
        self.screen = Screen(as_json=as_json)
        self.url = url
        self.profile = profile
        self._account_id = account_id

    @cached_property
    def transport(self) -> Transport:
        """The transport to the API, made at its first use.

        Raises: ConfigurationError, when there is no key.
        """
        from baseload._sync.transport import Transport
        from baseload.configuration import load_configuration

        configuration = load_configuration(
            self.url, account_id=self._account_id, profile=self.profile
        )
        if configuration.key is None:
            raise ConfigurationError(
                f"no key for the API at {configuration.url}: baseload login, or set "
                "BASELOAD_API_KEY, or BASELOAD_HOME to the folder that holds admin.key"
            )
        return Transport(configuration)

    def close(self) -> None:
        """Close the connections, if any were made."""
        if "transport" in self.__dict__:
            self.transport.close()

    def get(self, path: str, **query: Any) -> Document:
        return self._document(_call("GET", path, query=query))

    def post(self, path: str, body: Any = None, **query: Any) -> Document:
        return self._document(_call("POST", path, body=body, query=query))

    def put(self, path: str, body: Any) -> Document:
        return self._document(_call("PUT", path, body=body))

    def patch(self, path: str, body: Any) -> Document:
        return self._document(_call("PATCH", path, body=body))

    def delete(self, path: str, **query: Any) -> Document:
        return self._document(_call("DELETE", path, query=query))

    def items(self, path: str, limit: int | None = None, **query: Any) -> list[Document]:
        """The items of a list, newest first, at most `limit`."""
        return list(self.transport.pages(path, query, limit))

    def chunks(self, path: str, *, accept: str | None = None, **query: Any) -> Iterator[bytes]:
        """The body of an answer, as it comes, in the format that `accept` names."""
        headers = {"Accept": accept} if accept else {}
        return self.transport.chunks(_call("GET", path, query=query, headers=headers))

    def _document(self, call: Call) -> Document:
        return dict(self.transport.json(call) or {})


def _call(method: str, path: str, **parts: Any) -> Call:
    from baseload.calls import Call

    return Call(method, path, **parts)


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    takes_yes: bool = False,
    cls: type[TyperCommand] | None = None,
    **settings: Any,
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Add a function as a command: it gets a session, the options that all commands have, and
    the exit codes of all commands.

    takes_yes: whether it accepts `--yes` although it never asks, because what it removes is named:
    so scripts may say it to every command that removes something.
    cls: how its words are read, where that differs.
    settings: of the command's context, such as `allow_interspersed_args`.
    """

    def register(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(**given: Any) -> None:
            call: Callable[..., None] = function
            given.pop(YES, None)
            session = Session(
                as_json=given.pop("as_json"),
                url=given.pop("api"),
                account_id=given.pop("account"),
                profile=given.pop("profile"),
            )
            with _exit_codes(), closing(session):
                call(session, **given)

        shared = [
            _option("as_json", bool, False, typer.Option("--json", help="JSON on stdout")),
            _option("api", str | None, None, typer.Option("--api", help="address of the API")),
            _option(
                "account", str | None, None,
                typer.Option("--account", help="act for the account of this id (administrators)"),
            ),
            _option(
                "profile", str | None, None,
                typer.Option("--profile", help="as whom and where: baseload profile ls"),
            ),
        ]  # fmt: skip
        shared += [_YES] if takes_yes else []
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__ = function.__doc__
        words = name or function.__name__.replace("_", "-")
        app.command(words, cls=cls, context_settings=settings)(run)
        return function

    return register


def _option(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


YES = "accepted_yes"
_YES = _option(
    YES, bool, False,
    typer.Option("--yes", "-y", help="accepted everywhere; what is named is not asked about"),
)  # fmt: skip


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn the failures of any command into a line on stderr and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except ApiError as error:
        _complain(error_text(error))
        raise typer.Exit(REFUSED) from error
    except UnreachableError as error:
        _complain(str(error))
        raise typer.Exit(UNREACHABLE) from error
    except (ConfigurationError, MistakeError) as error:
        _complain(str(error))
        raise typer.Exit(USAGE) from error
    except NegativeError as error:
        _complain(str(error))
        raise typer.Exit(NEGATIVE) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:
        # The reader of stdout has exited: without this, the interpreter's flush would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(NEGATIVE) from error


def error_text(error: ApiError) -> str:
    """The text of a refusal: the API's detail, or each field error with its rule and value."""
    if not error.errors:
        return f"{error.detail} ({error.code})"
    lines = [f"{error.title} ({error.code}):"]
    for each in error.errors:
        found = "" if each.value is None else f" (found {each.value!r})"
        lines.append(f"  {each.field}: {each.rule}{found}")
    return "\n".join(lines)


def _complain(message: str) -> None:
    Screen(as_json=False).say(f"baseload: {message}")
