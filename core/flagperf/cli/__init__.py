"""The command line: parse, call, print. One command group per file, imported when it is used."""

from __future__ import annotations

import importlib
import signal
import sys

import click

from flagperf.cli.groups import CommandGroup
from flagperf.cli.output import echo, echo_message, echo_text
from flagperf.errors import FlagPerfError

COMMANDS = {
    "cases": ("flagperf.cli.cases:cases", "List and show the installed benchmark cases."),
    "vendors": ("flagperf.cli.vendors:vendors", "List, write and check vendor adapters."),
    "devices": (
        "flagperf.cli.devices:devices",
        "List the devices of this machine, of all vendors, with their current memory use.",
    ),
    "nodes": ("flagperf.cli.nodes:nodes", "Check the nodes of a cluster."),
    "env": (
        "flagperf.cli.env:env",
        "Show the environment as result pages list it: machine, cards, CPU, network, OS, kernel, driver, framework.",
    ),
    "data": ("flagperf.cli.data:data", "Check folders of real data before a run."),
    "plan": (
        "flagperf.cli.plan:plan",
        "Show what a run would do, without starting it: values and their layers, commands, environment.",
    ),
    "run": ("flagperf.cli.run:run", "Run a case and record it in a bundle, from which every metric can be recomputed."),
    "runs": ("flagperf.cli.runs:runs", "List, watch, show, label, remove, verify, sign and pass on runs."),
    "report": (
        "flagperf.cli.report:report",
        "Print runs for the terminal, as a result page in Markdown, as a page with charts in HTML, as JSON, "
        "or their measured rows as CSV.",
    ),
    "compare": ("flagperf.cli.compare:compare", "Compare runs or groups of runs, of any vendor, side by side."),
    "align": ("flagperf.cli.align:align", "Check whether the loss of RUN follows that of REFERENCE, step by step."),
    "pages": ("flagperf.cli.pages:pages", "Check published result pages."),
    "import": (
        "flagperf.cli.import_pages:import_pages",
        "Import published pages as reference results, which reports then show beside runs of the same case.",
    ),
    "site": (
        "flagperf.cli.site:site",
        "Show runs as a leaderboard: static pages in the folder OUT, to open from a disk or to put on a web server.",
    ),
    "export": ("flagperf.cli.export:export", "Export runs for other programs, unrounded."),
    "schema": (
        "flagperf.cli.schema:schema",
        "Print the JSON schema of a file (draft 2020-12), for editors and validators.",
    ),
    "completion": (
        "flagperf.cli.completion:completion",
        'Print a completion script for your shell, to be used as: eval "$(flagperf completion bash)".',
    ),
}
"""Name -> where it is, and its line in the help, which is not to import all of them."""


class LazyGroup(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def summary(self, ctx: click.Context, name: str) -> str:
        return COMMANDS[name][1]


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from flagperf import version

        echo(f"flagperf {version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
    from flagperf.cli.streams import loss_of_output, make_streams_last

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
    from flagperf.cli.usage_errors import as_bad_input

    bad_input = as_bad_input(error)
    echo_message(f"flagperf: {bad_input}")
    return bad_input.exit_code
