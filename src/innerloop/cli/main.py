"""The command ``innerloop``: registers the verbs and turns every end into an exit code.

0 done, 1 crash, 2 user error (no traceback), 3 a reproduction row is not as recorded, 75 a rank was lost, 130
interrupted.
"""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer

from innerloop._version import __version__
from innerloop.cli import (
    advise,
    analyze,
    data,
    demo,
    doctor,
    eval,
    export,
    ls,
    predict,
    report,
    resume,
    search,
    show,
    sweep,
    train,
)
from innerloop.cli.launch import as_rank, note_command
from innerloop.cli.options import LENIENT, help_text
from innerloop.cli.output import say, show_all_characters, write, write_json
from innerloop.cli.studies import STUDIES, study_verb
from innerloop.core.child_processes import watch_parent
from innerloop.core.errors import UserError, did_you_mean, fault_message
from innerloop.core.interrupts import interrupt_on_signals
from innerloop.core.ranks import LOST, LostRankError, take_rank
from innerloop.core.stderr import open_standard_streams, silence
from innerloop.experiment.recipe.library import shipped_names

INTERRUPTED = 130
LABOUR = ("train", "resume", "eval", "reproduce", "demo")
"""Verbs that take the same steps over and over in this process, which is ours alone."""
CONTEXT = {"help_option_names": ["-h", "--help"]}
# older typer raises the errors of the click package, newer typer those of its own copy: found in both
USAGE_ERROR: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")

app = typer.Typer(
    name="innerloop",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
_HELP = """Meta-learning in PyTorch, from the command line.

\b
Start here:
  innerloop demo                                  train, evaluate and write a page, in a minute
  innerloop train sine-maml                       train a recipe
  innerloop train sine-maml inner.steps=3 seed=1  change its settings
  innerloop ls                                    recipes, runs and benchmarks
  innerloop show sine-maml                        what a recipe says

Every verb explains itself with --help and answers in JSON with --json.
"""
VERBS: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "demo": (demo.demo, CONTEXT),
    "train": (train.train, LENIENT),
    "resume": (resume.resume, LENIENT),
    "eval": (eval.evaluate, LENIENT),
    "predict": (predict.predict, LENIENT),
    "export": (export.export, LENIENT),
    "sweep": (sweep.sweep, LENIENT),
    "advise": (advise.advise, LENIENT),
    "search": (search.search, LENIENT),
    "analyze": (analyze.analyze, LENIENT),
    "reproduce": (STUDIES["reproduce"], CONTEXT),
    "report": (report.report, CONTEXT),
    "ls": (ls.ls, CONTEXT),
    "show": (show.show, LENIENT),
    "bench": (STUDIES["bench"], CONTEXT),
    "doctor": (doctor.doctor, CONTEXT),
}


def _register(name: str, function: Callable[..., None]) -> None:
    app.command(name, context_settings=VERBS[name][1], help=help_text(function))(function)


for _name, (_function, _) in VERBS.items():
    _register(_name, _function)


GROUPS = {"data": data.app}  # verbs with verbs of their own
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)


def _version(asked: bool) -> None:
    if asked:
        write(f"innerloop {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def innerloop(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The options of the command itself."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    open_standard_streams()
    show_all_characters()
    interrupt_on_signals()
    watch_parent()
    if given and given[0] in LABOUR:
        from innerloop.core.resources import keep_freed_memory

        # a step on pictures else spends a tenth of its time on pages that the last one gave back
        keep_freed_memory()
    here = take_rank()
    return _run(given) if here is None else as_rank(here, given, _run)


def _run(given: list[str]) -> int:
    note_command(given)
    problem, notes = "", []
    try:
        code = _carried_out(given)
        if code != INTERRUPTED:  # newer typer makes this of Ctrl-C, older typer an exception
            return code if isinstance(code, int) else 0
        problem = "interrupted"
    except UserError as error:
        code, problem, notes = 2, str(error), list(getattr(error, "__notes__", ()))
    except USAGE_ERROR as error:
        code, problem = 2, _usage(error)
    except LostRankError as error:
        code, problem = LOST, str(error)
    except (KeyboardInterrupt, typer.Abort):
        code, problem = INTERRUPTED, "interrupted"
    except (Exception, SystemExit) as error:
        if _reader_has_gone(error):
            silence(sys.stdout)
            return 0
        code, problem = _unforeseen(error)
    for line in problem.splitlines():
        say(f"error: {line}" if code != INTERRUPTED else line)
    for note in notes:
        say(f"warning: {note}")
    if "--json" in given and code != LOST:  # the next attempt answers
        _write_error({"error": problem, "exit_code": code, **({"notes": notes} if notes else {})})
    return int(code)


def _carried_out(given: list[str]) -> Any:
    """Runs the verb; ``--help`` and ``--version`` are words also where JSON was asked for, inside of it."""
    _check_verb(given)
    if given and given[0] in STUDIES:
        _register(given[0], study_verb(given[0]))
    told = io.StringIO()
    words = "--json" in given and any(word in given for word in ("-h", "--help", "--version"))
    arguments = [word for word in given if not (words and word == "--json")] or ["--help"]
    with contextlib.redirect_stdout(told) if words else contextlib.nullcontext():
        code = app(args=arguments, prog_name="innerloop", standalone_mode=False)
    if words:
        write_json({"version" if "--version" in given else "help": told.getvalue().rstrip()})
    return code


def _reader_has_gone(error: BaseException) -> bool:
    """Whether standard output is a pipe that nobody reads (`innerloop ls | head`); libraries exit over it."""
    cause = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(cause, BrokenPipeError)


def _unforeseen(error: BaseException) -> tuple[int, str]:
    """What is neither done nor a user's mistake: a fault of the machine in a sentence, else a crash."""
    if isinstance(error, SystemExit):
        return (error.code if isinstance(error.code, int) else 1), ""
    if (words := fault_message(error)) is not None:
        return 2, words
    with contextlib.suppress(OSError, ValueError):
        traceback.print_exc()
    say("this is a bug in innerloop: please report the lines above with the output of `innerloop doctor`.")
    return 1, f"{type(error).__name__}: {error}"


def _write_error(error: dict[str, Any]) -> None:
    try:
        write_json(error)
    except (OSError, ValueError):  # standard output is full or closed, which may be what went wrong
        silence(sys.stdout)


def _check_verb(given: list[str]) -> None:
    """A word that is no verb: perhaps a recipe, perhaps a slip."""
    if not given or given[0].startswith("-") or given[0] in VERBS or given[0] in GROUPS:
        return
    word = given[0]
    if word in shipped_names():
        raise UserError(
            f"'{word}' is a recipe: `innerloop train {word}` trains it, `innerloop show {word}` prints it."
        )
    verbs = [*VERBS, *GROUPS]
    hint = did_you_mean(word, verbs)
    raise UserError(f"there is no verb '{word}'{hint}; the verbs are {', '.join(verbs)}.")


def _usage(error: Any) -> str:
    command = getattr(getattr(error, "ctx", None), "command_path", "innerloop")
    text = str(error.format_message()).rstrip(".")
    return f"{text[:1].lower()}{text[1:]}; `{command} --help` shows what it takes."
