"""Metrics that also read the source: COMET, and the perplexity of a model on the references.

They take the settings, the translator of the model, if there is one, and the systems with their
test set, and return a score for each system (``registries.SOURCE_METRICS``).
"""

import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt import __version__
from transformer_mt.config import EvaluateJob
from transformer_mt.data.subwords.tokenizer import one_line
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation.comparison import Evaluation
from transformer_mt.evaluation.scores import Score

COMMAND = "comet-score"
"""COMET's command. Its package pins old versions of numpy, protobuf and the hub's client, and its
checkpoints are pickles. It therefore runs as a separate process, from an environment of its own."""

COMET_MODEL = "Unbabel/wmt22-comet-da"
"""The model of most papers since 2022."""


def comet(job: EvaluateJob, _: Translator | None, evaluation: Evaluation) -> list[Score]:
    """COMET score of every system against the first reference, from one call of ``comet-score``.

    Raises:
        InputError: The command is not installed or fails, for example without its model.
    """
    from transformer_mt.distributed.world import pick_device  # loads PyTorch

    source = [text for _, text in evaluation.test.split_source()]
    reference, systems = _first_reference(evaluation), evaluation.systems
    command, gpu = comet_command(), pick_device(job.device).type == "cuda"
    options = ["--gpus", "1" if gpu else "0", "--quiet", "--only_system"]
    with TemporaryDirectory(prefix="mt-comet-") as name:
        folder = Path(name)
        files = [f"{i}.txt" for i in range(len(systems))]
        texts = [*(system.hypotheses for system in systems), source, reference]
        for file, lines in zip([*files, "src", "ref"], texts, strict=True):
            # comet-score also ends lines at \r.
            text = "".join(f"{one_line(line)}\n" for line in lines)
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
        done = subprocess.run(
            [command, "-s", "src", "-r", "ref", "-t", *files, "--model", COMET_MODEL, *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    printed = dict(re.findall(r"^(\S+)\tscore: (-?[\d.]+)$", done.stdout, re.MULTILINE))
    if done.returncode or set(printed) != set(files):
        reason = [f"exit status {done.returncode}", *done.stderr.strip().splitlines()][-1]
        raise InputError(
            f"{COMMAND} failed ({reason}): can it download its model {COMET_MODEL}? Offline, copy "
            "the model from the Hugging Face cache of a machine that has it"
        )
    return [
        Score(
            name="COMET",
            score=float(printed[file]),
            signature=f"nrefs:1|model:{COMET_MODEL}",
            segments=len(source),
            decimals=4,
        )
        for file in files
    ]


def comet_command() -> str:
    """Path of ``comet-score``.

    Raises:
        InputError: The command is not installed.
    """
    command = shutil.which(COMMAND)
    if command is None:
        raise InputError(
            f"COMET needs the command {COMMAND}, which is not installed; install it in an "
            "environment of its own: pipx install unbabel-comet"
        )
    return command


def perplexity(
    _: EvaluateJob, translator: Translator | None, evaluation: Evaluation
) -> list[Score]:
    """Perplexity per subword of the model that translates, as in the paper's Table 3.

    It is exp of the mean negative log-likelihood of the reference's subwords, end symbols included.
    As in the paper, models with different vocabularies cannot be compared: the signature includes
    the size of the vocabulary.

    Raises:
        InputError: A line is longer than the model's position embeddings allow.
    """
    source, reference = evaluation.test.source, _first_reference(evaluation)
    assert translator is not None
    assert source is not None
    scored = translator.score(source, reference)
    subwords = sum(len(translation.pieces) for translation in scored)
    nll = -sum(translation.log_prob for translation in scored) / subwords
    ppl = Score(
        name="PPL",
        score=math.exp(min(nll, 700)),  # exp overflows above 709
        signature=f"nrefs:1|tok:subwords-{translator.tokenizer.tgt.vocab_size}|version:{__version__}",
        segments=len(reference),
        verbose=f"{subwords:,} subwords",
    )
    return [ppl] * len(evaluation.systems)


def _first_reference(evaluation: Evaluation) -> Sequence[str]:
    return next(iter(evaluation.test.references.values()))
