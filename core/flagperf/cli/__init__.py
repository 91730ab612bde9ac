"""The command line: parse, call, print. One command group per file, imported when it is used."""

from __future__ import annotations

import errno
import functools
import importlib
import importlib.metadata
import io
import os
import select
import signal
import sys
from typing import Any, TextIO

import click

from flagperf.cli.output import echo, echo_message, echo_text
from flagperf.errors import BadInput, FlagPerfError, PluginFailed, unknown_name
from flagperf.text import flagperf_command

_UNLIMITED = 10_000
"""Characters of a summary. click cuts it off at the width of the terminal; wrapping it is enough."""

PLUGGED = ""
"""Of a command that is found by its entry point."""

ENTRY_POINTS = "flagperf.commands"
"""The entry-point group by which packages add commands: `report`, or `runs pack` for a word of a group."""

OWN = "flagperf"
"""The distribution whose commands no other one can take."""

COMMANDS = {
    "cases": ("flagperf.cli.cases:cases", "List and show the installed benchmark cases."),
    "vendors": ("flagperf.cli.vendors:vendors", "List, write and check vendor adapters."),
    "devices": (
        "flagperf.cli.nodes:devices",
        "List the devices of this machine, of all vendors, with their current memory use.",
    ),
    "nodes": ("flagperf.cli.nodes:nodes", "Check the nodes of a cluster."),
    "env": (
        "flagperf.cli.nodes:env",
        "Show the environment as result pages list it: machine, cards, CPU, network, OS, kernel, driver, framework.",
    ),
    "data": ("flagperf.cli.cases:data", "Check folders of real data before a run."),
    "plan": (
        "flagperf.cli.plan:plan",
        "Show what a run would do, without starting it: values and their layers, commands, environment.",
    ),
    "run": (
        "flagperf.cli.run:run",
        "Run a case and record it in a bundle, from which every metric can be recomputed.",
    ),
    "runs": ("flagperf.cli.runs:runs", "List, watch, show, label, remove, verify, sign and pass on runs."),
    "report": (
        PLUGGED,
        "Print runs for the terminal, as a result page in Markdown, as a page with charts in HTML, as JSON, or their "
        "measured rows as CSV.",
    ),
    "compare": (PLUGGED, "Compare runs or groups of runs, of any vendor, side by side."),
    "align": (
        "flagperf.cli.align:align",
        "Check whether the loss of RUN follows that of REFERENCE, step by step.",
    ),
    "pages": (PLUGGED, "Check published result pages."),
    "import": (
        PLUGGED,
        "Import published pages as reference results, which reports then show beside runs of the same case.",
    ),
    "site": (
        PLUGGED,
        "Show runs as a leaderboard: static pages in the folder OUT, to open from a disk or to put on a web server.",
    ),
    "export": (PLUGGED, "Export runs for other programs, unrounded."),
    "schema": (
        "flagperf.cli.schema:schema",
        "Print the JSON schema of a file (draft 2020-12), for editors and validators.",
    ),
    "completion": (
        "flagperf.cli.schema:completion",
        'Print a completion script for your shell, to be used as: eval "$(flagperf completion bash)".',
    ),
    "runs pack": (PLUGGED, "Pack runs into one archive, to pass them on."),
    "runs unpack": (
        PLUGGED,
        "Unpack runs of an archive into the folder of the runs, after a check against their MANIFEST.",
    ),
    "runs redact": (
        PLUGGED,
        "Copy a run without what identifies its owner: hosts, users, addresses, serial numbers, UUIDs, paths.",
    ),
}
"""Words of a command -> where it is, and its summary, so that listing commands imports none of them."""


@functools.cache
def plugged_commands() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Return the entry points of all installed packages by the words of their command, flagperf's own alone if it has
    one."""
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(" ".join(point.name.split()), []).append(point)
    return {words: [point for point in points if _giver(point) == OWN] or points for words, points in found.items()}


def _giver(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


class CommandGroup(click.Group):
    """A group whose commands are its own and those of entry points. Listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        prefix = self._words(ctx, "")
        ours = [words for words in COMMANDS if words.startswith(prefix)]
        others = sorted(words for words in plugged_commands() if words.startswith(prefix))
        names = [words.removeprefix(prefix) for words in dict.fromkeys([*ours, *others])]
        known = [*super().list_commands(ctx), *(name for name in names if " " not in name)]
        return list(dict.fromkeys(known)) if not prefix else sorted(set(known))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        words = self._words(ctx, cmd_name)
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        target, _ = COMMANDS.get(words, (PLUGGED, ""))
        if target != PLUGGED:
            module, _, name = target.partition(":")
            command: click.Command = getattr(importlib.import_module(module), name)
            return command
        points = plugged_commands().get(words)
        return _plugged_command(words, points) if points else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        is_unknown = bool(args) and not args[0].startswith("-") and args[0] not in known
        if is_unknown and not ctx.resilient_parsing:
            raise unknown_name("command", args[0], known, f"({see_help(ctx)})")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            if error.ctx is None and command is not None:  # some errors of click's parser do not name their command
                error.ctx = click.Context(command, parent=ctx, info_name=ctx.invoked_subcommand)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        words = self._words(ctx, name)
        if words in COMMANDS:
            return COMMANDS[words][1]
        found = super().get_command(ctx, name)
        if found is not None:
            return found.get_short_help_str(_UNLIMITED)
        return f"(from {', '.join(map(_giver, plugged_commands()[words]))})"

    @staticmethod
    def _words(ctx: click.Context, name: str) -> str:
        """Return the words of a command as COMMANDS has them: `runs pack`."""
        return (
            " ".join([*ctx.command_path.split()[1:], name])
            if name
            else "".join(f"{word} " for word in ctx.command_path.split()[1:])
        )


def _plugged_command(words: str, points: list[importlib.metadata.EntryPoint]) -> click.Command:
    """Return the command of an entry point. One that cannot be had is a command that says why."""
    givers = ", ".join(map(_giver, points))
    if len(points) > 1:
        return _broken(words, f"it is claimed by {givers}; uninstall all of them but one")
    try:
        command = points[0].load()
    except Exception as error:  # noqa: BLE001
        return _broken(words, f"{points[0].value} of {givers} cannot be imported: {type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _broken(words, f"{points[0].value} of {givers} is not a click command")
    return command


def _broken(words: str, reason: str) -> click.Command:
    def fail(**_arguments: object) -> None:
        raise PluginFailed(f"`flagperf {words}` is not available: {reason}")

    parameter = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(
        words.rpartition(" ")[2], callback=fail, params=[parameter], add_help_option=False,
        help=f"Not available: {reason}", context_settings={"ignore_unknown_options": True},
    )  # fmt: skip


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from flagperf import version

        echo(f"flagperf {version()}")
        ctx.exit()


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    callback=_print_version,
    expose_value=False,
    is_eager=True,
    help="Show the version and exit.",
)
def cli() -> None:
    """Measure AI accelerators of any vendor with the same benchmark cases.

    Exit codes: 0 succeeded; 1 a bug in flagperf; 2 bad input; 3 failed; 4 out of memory; 5 timed out; 6 unsupported;
    7 target missed, not aligned or findings; 8 does not fit; 9 a limit of `compare --fail-if` is broken;
    130 interrupted.

    FLAGPERF_WITHOUT=acme,other starts without these plugins, for one that hangs or ends the command; `vendors list`
    finds it.
    """


def main() -> None:
    stdout = make_streams_last()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some callers do, no child would have an exit code
    code = run_cli(sys.argv[1:])
    loss = loss_of_output(stdout)
    if loss:
        echo_message(f"flagperf: cannot write to stdout: {loss}")
    _keep_exit_code()
    sys.exit(code or (3 if loss else 0))


def _keep_exit_code() -> None:
    """While the interpreter shuts down, a signal that had a Python handler would change the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)


def run_cli(arguments: list[str]) -> int:
    """The only place where errors become exit codes."""
    try:
        result = cli.main(arguments, prog_name="flagperf", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except FlagPerfError as error:
        echo_message(f"flagperf: {error}")
        return error.exit_code
    except click.ClickException as error:
        return _report_usage(error)
    except (click.Abort, KeyboardInterrupt):
        echo_message("flagperf: interrupted")
        return 130
    except MemoryError:
        echo_message("flagperf: out of memory: this process may not have more; see `ulimit -v` and the control group")
        return 4
    except SystemExit as exit_request:
        return exit_request.code if isinstance(exit_request.code, int) else 1
    except Exception:  # noqa: BLE001
        import traceback

        echo_text(traceback.format_exc(), err=True)
        echo_message("flagperf: this is a bug in flagperf; please report it with the lines above")
        return 1


def _report_usage(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2: a group without a command shows its help
        error.show()
        return error.exit_code

    bad_input = as_bad_input(error)
    echo_message(f"flagperf: {bad_input}")
    return bad_input.exit_code


# click's errors in the form of all others: `flagperf: what is wrong; what to do`.


def as_bad_input(error: click.ClickException) -> BadInput:
    """The message ends with the command whose help says more."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if ctx is None:
        return BadInput(_plain(error.format_message()))
    if isinstance(error, click.NoSuchOption):
        return unknown_name("option", error.option_name, _options(ctx), f"({see_help(ctx)})")
    return BadInput(f"{_what_is_wrong(error)}; {see_help(ctx)}")


def see_help(ctx: click.Context) -> str:
    commands = ctx.command_path.split()[1:]
    return f"see `{flagperf_command(*commands, '--help')}`"


def _what_is_wrong(error: click.ClickException) -> str:
    """With the parameter as the user types it, first."""
    parameter = error.param if isinstance(error, click.BadParameter) else None
    if parameter is None:
        return _plain(error.format_message())
    name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
    if isinstance(error, click.MissingParameter):
        return f"{parameter.param_type_name} {name} is missing"
    return f"{name}: {_plain(error.message)}"


def _options(ctx: click.Context) -> list[str]:
    parameters = [each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option)]
    return [name for each in parameters for name in (*each.opts, *each.secondary_opts)]


def _plain(message: str) -> str:
    """As the middle of a sentence."""
    text = message.strip().removesuffix(".")
    return text[:1].lower() + text[1:]


# stdout and stderr whose writes never raise.
#
# In Python a failed write raises an exception: in the middle of a run whose reader has left (`| head`), and again
# while the interpreter shuts down. Here the first error is kept, the command goes on, and `main` reports it once, at
# the end.


class LastingStream(io.RawIOBase):
    """A file descriptor to which writing never raises. `error` is why the first write failed that did."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        while self.error is None:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # another process that shares it made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def make_streams_last() -> LastingStream:
    """Replace sys.stdout and sys.stderr; gives back what is under stdout."""
    for descriptor in range(3):
        _occupy(descriptor)
    stdout, stderr = LastingStream(1), LastingStream(2)
    sys.stdout, sys.stderr = _text(stdout, sys.stdout, "strict"), _text(stderr, sys.stderr, "backslashreplace")
    return stdout


def loss_of_output(stdout: LastingStream) -> str:
    """What kept output from being written, empty where nothing did. A reader that has left wanted no more."""
    sys.stdout.flush()
    if stdout.error is None or stdout.error.errno == errno.EPIPE:
        return ""
    return "it is closed" if stdout.error.errno == errno.EBADF else str(stdout.error.strerror)


def _occupy(descriptor: int) -> None:
    """The next opened file would take the number of a closed standard stream (`>&-`). Read-only: writes still fail."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)


def _text(raw: LastingStream, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=(before.errors if before else None) or errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
    )
