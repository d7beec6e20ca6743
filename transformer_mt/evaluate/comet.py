"""COMET, by its own command ``comet-score``, where somebody has installed it.

The package pins old versions of numpy, protobuf and the hub's client, and its checkpoints are
pickles: so it lives in an environment of its own, and none of it is loaded here.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.data.subwords.tokenizer import one_line
from transformer_mt.errors import InputError
from transformer_mt.evaluate.scores import Score

COMMAND = "comet-score"


def comet(
    systems: Mapping[str, Sequence[str]],
    source: Sequence[str],
    reference: Sequence[str],
    *,
    model: str,
    gpu: bool,
) -> dict[str, Score]:
    """Every system's COMET score against one reference, as ``comet-score`` prints it.

    Args:
        systems: Hypotheses by the system's name.
        source: The lines translated.
        reference: Their reference translations.
        model: Name of a COMET model, or a checkpoint file.
        gpu: Whether it may use a GPU.

    Raises:
        InputError: The command is not installed, or it failed, as without its model.
    """
    command = comet_command()
    where = str(Path(model).resolve()) if Path(model).is_file() else model
    options = ["--gpus", "1" if gpu else "0", "--quiet", "--only_system"]
    with TemporaryDirectory(prefix="mt-comet-") as name:
        folder = Path(name)
        files = [f"{i}.txt" for i in range(len(systems))]
        texts = zip([*files, "src", "ref"], [*systems.values(), source, reference], strict=True)
        for file, lines in texts:
            # It ends lines at \r too.
            text = "".join(f"{one_line(line)}\n" for line in lines)
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
        done = subprocess.run(
            [command, "-s", "src", "-r", "ref", "-t", *files, "--model", where, *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    found = dict(re.findall(r"^(\S+)\tscore: (-?[\d.]+)$", done.stdout, re.MULTILINE))
    if done.returncode or set(found) != set(files):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise InputError(
            f"{COMMAND} failed ({said[-1].strip() if said else f'exit status {done.returncode}'}): "
            f"can it get its model {model}? comet_model=FILE.ckpt names one on this machine"
        )
    return {
        system: Score(
            name="COMET",
            score=float(found[file]),
            signature=f"nrefs:1|model:{model}",
            segments=len(source),
            verbose="",
            decimals=4,
        )
        for system, file in zip(systems, files, strict=True)
    }


def comet_command() -> str:
    """The path of ``comet-score``.

    Raises:
        InputError: It is not installed.
    """
    beside = Path(sys.executable).with_name(COMMAND)
    command = str(beside) if beside.exists() else shutil.which(COMMAND)
    if command is None:
        raise InputError(
            f"metrics: comet needs the command {COMMAND}, which is not installed; it goes well in "
            "an environment of its own: pipx install unbabel-comet"
        )
    return command
