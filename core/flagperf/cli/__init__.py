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

ENTRY_POINTS = "flagperf.commands"
"""The entry-point group by which packages add commands: `report`, or `runs pack` for a word of a group."""

OWN = "flagperf"
"""The distribution whose commands no other one can take."""

PLUGGED = ""
"""Stands for a command that is found by its entry point."""

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
    """Return the entry points of all installed packages by the words of their command. If flagperf has one of its own
    for these words, the others are left out."""
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(" ".join(point.name.split()), []).append(point)
    return {
        words: [point for point in points if _giver(point) == OWN] or sorted(points, key=_giver)
        for words, points in found.items()
    }


def _giver(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


def plugged_command(words: str, points: list[importlib.metadata.EntryPoint]) -> click.Command:
    """Return the command of an entry point, or a command that says why it is not available."""
    givers = ", ".join(map(_giver, points))
    if len(points) > 1:
        reason = f"it is claimed by {givers}; uninstall all of them but one"
    else:
        try:
            command = points[0].load()
            if isinstance(command, click.Command):
                return command
            reason = f"{points[0].value} of {givers} is not a click command"
        except Exception as error:  # noqa: BLE001
            reason = f"{points[0].value} of {givers} cannot be imported: {type(error).__name__}: {error}"

    def fail(**_arguments: object) -> None:
        raise PluginFailed(f"`flagperf {words}` is not available: {reason}")

    return click.Command(
        words.rpartition(" ")[2],
        callback=fail,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        add_help_option=False,
        help=f"Not available: {reason}",
        context_settings={"ignore_unknown_options": True},
    )


class CommandGroup(click.Group):
    """A group whose commands are its own, those of COMMANDS and those of entry points. Listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        path = _path(ctx)
        every = (words for words in (*COMMANDS, *sorted(plugged_commands())) if words.startswith(path))
        names = dict.fromkeys(name for words in every if " " not in (name := words.removeprefix(path)))
        return sorted({*super().list_commands(ctx), *names}) if path else list(names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        words = _path(ctx) + cmd_name
        found = super().get_command(ctx, cmd_name)
        target, _ = COMMANDS.get(words, (PLUGGED, ""))
        if found is None and target != PLUGGED:
            module, _, name = target.partition(":")
            found = getattr(importlib.import_module(module), name)
        if found is None and words in plugged_commands():
            found = plugged_command(words, plugged_commands()[words])
        return found

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
        summaries = {}
        for name in self.list_commands(ctx):
            words, own = _path(ctx) + name, super().get_command(ctx, name)
            if words in COMMANDS:
                summaries[name] = COMMANDS[words][1]
            elif own is not None:
                summaries[name] = own.get_short_help_str(limit=10_000)  # click would cut it off at the terminal's width
            else:
                summaries[name] = f"(from {', '.join(map(_giver, plugged_commands()[words]))})"
        with formatter.section("Commands"):
            formatter.write_dl([*summaries.items()])


def _path(ctx: click.Context) -> str:
    """Return the words of a group as COMMANDS begins with them: `runs `; empty for flagperf itself."""
    return "".join(f"{word} " for word in ctx.command_path.split()[1:])


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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):  # while Python shuts down, its handler would change the exit code
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code or (3 if loss else 0))


def run_cli(arguments: list[str]) -> int:
    """Run a command line and return its exit code. Errors become exit codes nowhere else."""
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
    """Print an error of click's in the form of all others: `flagperf: what is wrong; what to do`."""
    if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2: a group without a command shows its help
        error.show()
        return error.exit_code
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    parameter = error.param if isinstance(error, click.BadParameter) else None
    wrong = error.format_message() if parameter is None or ctx is None else error.message
    wrong = wrong.strip().removesuffix(".")
    wrong = wrong[:1].lower() + wrong[1:]
    if parameter is not None and ctx is not None:
        name = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
        is_missing = isinstance(error, click.MissingParameter)
        wrong = f"{parameter.param_type_name} {name} is missing" if is_missing else f"{name}: {wrong}"
    if ctx is None:
        problem = BadInput(wrong)
    elif isinstance(error, click.NoSuchOption):
        options = [each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option)]
        names = [name for each in options for name in (*each.opts, *each.secondary_opts)]
        problem = unknown_name("option", error.option_name, names, f"({see_help(ctx)})")
    else:
        problem = BadInput(f"{wrong}; {see_help(ctx)}")
    echo_message(f"flagperf: {problem}")
    return problem.exit_code


def see_help(ctx: click.Context) -> str:
    return f"see `{flagperf_command(*ctx.command_path.split()[1:], '--help')}`"


class LastingStream(io.RawIOBase):
    """A file descriptor to which writing never raises.

    In Python a failed write raises an exception: in the middle of a run whose reader has left (`| head`), and again
    while the interpreter shuts down. Here the first `error` is kept, the command goes on, and `main` reports it once.
    """

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
    """Replace sys.stdout and sys.stderr. Return what is under stdout."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed (`>&-`): the next opened file would take its number. Read-only: writes still fail
            os.open(os.devnull, os.O_RDONLY)
    stdout, stderr = LastingStream(1), LastingStream(2)
    sys.stdout, sys.stderr = _text(stdout, sys.stdout, "strict"), _text(stderr, sys.stderr, "backslashreplace")
    return stdout


def loss_of_output(stdout: LastingStream) -> str:
    """Say what kept output from being written, empty if nothing did. A reader that has left wanted no more."""
    sys.stdout.flush()
    if stdout.error is None or stdout.error.errno == errno.EPIPE:
        return ""
    return "it is closed" if stdout.error.errno == errno.EBADF else str(stdout.error.strerror)


def _text(raw: LastingStream, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=(before.errors if before else None) or errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
    )
