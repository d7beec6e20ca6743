"""What the three commands share: compose the configuration, call one function, report errors.

Exit status: 0 done, 1 bad input or environment, 2 bad usage, 130 and 143 interrupted. An error is
one line on standard error; only a bug shows a traceback.
"""

import os
import re
import select
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NoReturn

import hydra.version

# The two functions behind @hydra.main, called here one by one: @hydra.main leaves no room for a
# word about a wrong flag. pyproject.toml holds Hydra below 1.4.
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import YAMLError

from transformer_mt import __version__, model_folder
from transformer_mt.cli.sweep import Job, Sweep
from transformer_mt.config import EvaluateJob, TrainJob, TranslateJob, config_dir, schema
from transformer_mt.config.help import register_help
from transformer_mt.errors import InputError, in_a_line, lacks_memory

Command = Literal["train", "translate", "evaluate"]

PROGRAMS: dict[Command, str] = {
    "train": "mt-train",
    "translate": "mt-translate",
    "evaluate": "mt-eval",
}

_SCHEMAS: dict[Command, type] = {
    "train": TrainJob,
    "translate": TranslateJob,
    "evaluate": EvaluateJob,
}


_AS_IN_OUR_CONFIGS = (
    *("hydra/hydra_logging=none", "hydra/job_logging=none"),
    *("hydra.run.dir=.", "hydra.output_subdir=null", "hydra.job.chdir=false"),
)
"""What Hydra is told so that it writes nothing of its own."""


class UsageError(Exception):
    """The command line is wrong: one line on standard error, exit status 2."""


def main(command: Command, schema: type[Job], run: Callable[[Job], None]) -> None:
    """Compose the command's configuration from sys.argv and run the job, or the jobs of a sweep.

    Raises:
        SystemExit: With the exit status, unless the job is done.
    """
    program = PROGRAMS[command]
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as all text of ours, whatever the locale
        if isinstance(sys.stdout.buffer, RawIOBase):
            # PYTHONUNBUFFERED: a raw file may write a part alone, and nobody would see it.
            number = sys.stdout.fileno()
            sys.stdout = open(number, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    sweep: Sweep | None = None

    def task(config: DictConfig) -> None:
        # Inside Hydra as well: it would add lines of its own to an error.
        with _exit_status(program), sweep.job() if sweep else nullcontext():
            job = _to_job(config, command)
            assert isinstance(job, schema)
            run(sweep.start(job) if sweep else job)

    with _exit_status(program), ExitStack() as stack:
        if "--version" in sys.argv[1:]:  # Hydra would tell its own
            print(program, __version__)
            return
        register_schemas()
        parser = get_args_parser()
        parser.error = _refuse_flags  # type: ignore[method-assign]
        args = parser.parse_intermixed_args()
        overrides = list(args.overrides)
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises, and leaves the report to us
        hydra.version.setbase("1.3")
        try:
            if args.multirun or "hydra.mode=MULTIRUN" in overrides:
                sweep = Sweep(program, overrides)
                # Hydra insists on a multirun.yaml; the config.yaml of each run says more.
                scratch = stack.enter_context(TemporaryDirectory(prefix="mt-multirun-"))
                args.overrides.insert(0, f"hydra.sweep.dir='{scratch}'")
            if args.config_name:  # in place of ours, which says all this
                args.overrides[:0] = _AS_IN_OUR_CONFIGS
            _run_hydra(
                args=args,
                args_parser=parser,
                task_function=task,
                config_path=str(config_folder(command)),
                config_name=command,
            )
        # TypeError: model=[1]. No job's own error comes here.
        except (HydraException, OmegaConfBaseException, ValueError, TypeError, YAMLError) as error:
            raise UsageError(_explain(error, command, overrides)) from error
        finally:
            print(end="", flush=True)  # here, where a full disk or a closed pipe gets its report
        if sweep:
            sweep.finish()


def config_folder(command: Command) -> Path:
    """The folder of the command's primary config.

    Only ``train`` has groups around it: beside them, ``model=FOLDER`` would choose from ``model/``.
    """
    return config_dir() if command == "train" else config_dir() / "commands"


def register_schemas() -> None:
    """Make the schemas known to Hydra as ``train_schema`` and so on, and the text of ``--help``."""
    register_help()
    for command in PROGRAMS:
        ConfigStore.instance().store(name=f"{command}_schema", node=schema(_SCHEMAS[command]))


def _to_job(config: DictConfig, command: Command) -> object:
    """The composed config as the command's dataclass, checked."""
    kind = _SCHEMAS[command]
    known = set(_dotted_keys(schema(kind)))
    own = OmegaConf.get_type(config) is not kind  # --config-name, of the config.yaml of a run, say
    try:
        if own:
            names = [str(key) for key in config if key not in model_folder.NO_SETTINGS]
            config = OmegaConf.masked_copy(config, names)
        for key in _dotted_keys(config):
            if key not in known:  # +key=value gets past Hydra
                choice = _suggest(key, sorted(known)) or ": there is no such setting"
                raise UsageError(f"unknown key {key!r}{choice}")
        return OmegaConf.to_object(OmegaConf.merge(schema(kind), config) if own else config)
    except MissingMandatoryValue as error:
        raise UsageError(f"{error.full_key} is not set: say {error.full_key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise UsageError(f"{error.full_key}: {_first_line(error)}") from error


def _dotted_keys(node: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in map(str, node):
        yield prefix + key
        child = None if OmegaConf.is_missing(node, key) else node[key]
        if isinstance(child, DictConfig):
            yield from _dotted_keys(child, f"{prefix}{key}.")


@contextmanager
def _exit_status(program: str) -> Iterator[None]:
    """Turn an exception into one line on standard error and an exit status."""
    try:
        yield
    except UsageError as error:
        _fail(program, str(error), 2)
    except InputError as error:
        _fail(program, str(error), 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one may come while we leave
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        closed = isinstance(error, BrokenPipeError) and _reader_left()
        try:
            print(end="", flush=True)
        except OSError:  # Python will try again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if closed:  # as in `mt-translate … | head`
            sys.exit(128 + signal.SIGPIPE)
        _fail(program, in_a_line(error), 1)
    except Exception as error:
        if lacks_memory(error):
            _fail(program, f"out of memory ({_first_line(error)}): ask for something smaller", 1)
        if str(error).startswith("Symlink loop"):  # Path.resolve, up to Python 3.12
            _fail(program, str(error), 1)
        traceback.print_exc()
        sys.exit(1)


def _fail(program: str, message: str, status: int) -> NoReturn:
    print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def _reader_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _refuse_flags(message: str) -> NoReturn:
    """Stand in for argparse's own error, which prints Hydra's usage."""
    flag = re.fullmatch(r"unrecognized arguments: --?([\w.-]+).*", message)
    if flag:
        key = flag[1].replace("-", "_")
        message += f"; a setting is written {key}=VALUE, without dashes"
    raise UsageError(f"{message} (see --help)")


def _explain(error: Exception, command: Command, overrides: Sequence[str]) -> str:
    """One line for Hydra's several: which argument is wrong, and what would be right."""
    message, cause = str(error), error.__cause__ or error.__context__
    if isinstance(error, OverrideParseException):
        return _explain_syntax(error.override)
    if isinstance(error, MissingConfigException) and error.options:
        return _explain_option(str(error.missing_cfg_file), error.options, config_folder(command))
    if ambiguous := re.match(r"Ambiguous value for argument '(.*)'$", message, re.MULTILINE):
        return f"{_explain_syntax(ambiguous[1])}; for one job per value add -m"
    if isinstance(cause, OmegaConfBaseException):
        place = re.match(r"In '.*?':|Could not override '(?P<key>.*?)'\.", message)
        if isinstance(cause, ConfigKeyError | ConfigAttributeError):
            key = str(cause.full_key or cause.key)
            parent = place["key"] if place else None
            if parent is not None and parent.startswith(f"{key}."):  # a group that is none
                key = parent
            if parent is not None and not key.startswith(parent):  # an item of a list
                item = cause.object_type
                names = [f.name for f in fields(item)] if is_dataclass(item) else []
                return f"unknown key {key!r} in {parent}; choose from {', '.join(names)}"
            groups = {f.name for f in config_folder(command).iterdir() if f.is_dir()}
            settings = set(_dotted_keys(schema(_SCHEMAS[command])))
            if key in groups - settings:  # Hydra takes what is in experiment/ for settings of it
                return (
                    f"unknown key {key!r}: a file in a folder {key}/ has to begin with the line "
                    "'# @package _global_'"
                )
            known = sorted(settings | groups)
            source = f"{place[0]} " if place and parent is None else ""
            choice = _suggest(key, known) or "; --cfg job lists all keys"
            return f"{source}unknown key {key!r}{choice}"
        override = message.removeprefix("Error merging override ")
        subject = override if override != message else cause.full_key
        return f"{subject}: {_explain_type(str(override), _first_line(cause))}"
    message = re.split(r"\n(?:To append|Config search path)", message)[0].strip()
    if "No match in the defaults list" in message:
        message += " (a config of your own has no groups: say GROUP.SETTING=VALUE)"
    return f"{message} (given: {shlex.join(overrides) or 'nothing'})"


def _explain_type(override: str, message: str) -> str:
    """What to give in place of a value of the wrong type."""
    if "is not a ListConfig" in message or "merge DictConfig with ListConfig" in message:
        return "give a list, as [a,b]"
    if message.startswith(("Cannot convert 'list'", "Cannot convert 'ListConfig'")):
        return "give one text, not a list"
    if "is not a subclass of SourceConfig" in message:
        return "give each source as {src: FILE, tgt: FILE} or the like"
    if re.search(r"is not a subclass of \w+Config", message):
        key, _, value = override.partition("=")
        return f"say {key}.SETTING=VALUE; a file of the group is {key.rpartition('.')[2]}={value}"
    return message


def _explain_syntax(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"{override!r} is not of the form key=value (see --help)"
    if value[:1] in ("[", "{") or "[" in key:
        return (
            f"cannot read {override!r}: check its brackets and commas, quote it as a whole, and "
            'put what has other signs than letters, digits, / . - _ in quotes of its own, as "~/a"'
        )
    quoted = value.replace("\\", "\\\\").replace('"', r"\"")
    argument = shlex.quote(f'{key}="{quoted}"')
    return f"cannot read {override!r}: special characters need two pairs of quotes, {argument}"


def _explain_option(path: str, options: Sequence[str], root: Path) -> str:
    group, _, name = path.rpartition("/")
    top, _, rest = path.partition("/")
    if top != "hydra" and (root / top).is_dir():  # Hydra does not look into the folders of a group
        files = (root / top).rglob("*.yaml")
        nested = {file.relative_to(root / top).with_suffix("").as_posix() for file in files}
        group, name, options = top, rest, sorted(nested.union(options))
    choice = _suggest(name, options) or f"; choose from {', '.join(options)}"
    if top == "model" and Path(name).parent != Path():
        choice += "; to begin with the weights of a model folder, say train.init_from=FOLDER"
    return f"no {group}={name}{choice}"


def _suggest(key: str, known: Sequence[str]) -> str:
    """``; did you mean …?``, or nothing."""
    leaf = key.rpartition(".")[2]
    leaves = {name: name.rpartition(".")[2] for name in known}
    near = [name for name in known if leaves[name] == leaf]
    near = near or [name for name in known if leaves[name].endswith(f"_{leaf}")]  # lr: peak_lr
    near = near or [name for name in known if leaves[name].startswith(f"{leaf}_")]  # beam
    near.sort(key=lambda name: name.rpartition(".")[0] != key.rpartition(".")[0])
    near = near or get_close_matches(key, known, n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(near[:2])}?" if near else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
