"""The engine of ``mt-translate``: the one that the job asks for, or the best one."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch

from transformer_mt import files
from transformer_mt.config import DecodeConfig, TrainJob, TranslateJob
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.ctranslate2_conversion import check_shape, convert
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Translator, check_available
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer


def open_engine(
    job: TranslateJob,
    device: torch.device,
    models: Sequence[Transformer],
    tokenizer: Tokenizer,
    trained: TrainJob,
    report: Callable[[str], None],
) -> Translator:
    """Makes the models ready to translate.

    Args:
        job: What is asked for.
        device: Where to translate; the models go there.
        models: That of ``job.model``, then those of ``job.ensemble``, all on the CPU.
        tokenizer: Their vocabulary.
        trained: The first model's config; its search settings are those to use.
        report: Says a line to the user.

    Raises:
        InputError: The engine asked for cannot do the job, or not on this device.
    """
    special = _only_by_torch(job, trained.decode)
    engine = job.engine
    if engine == "auto":
        engine = "torch" if special else _fastest(job.compute_type, device, models[0])
    parts = (tokenizer, trained.decode, Normalizer.of(trained.data))
    converted = None
    if engine == "ctranslate2":
        if special:
            raise InputError(f"engine=ctranslate2 cannot do {', '.join(special)}: say engine=torch")
        folder = files.expand_user(job.model)
        try:
            check_available(job.compute_type, device)
            converted, note = convert(folder, models[0], tokenizer, job.compute_type)
        except InputError as error:
            if job.engine != "auto" or job.compute_type != "float32":
                raise
            note = f"{error}; going on with engine=torch"
        if note:
            report(note)
    for model in models:
        model.to(device)
    if converted is not None:
        settings = (models[0], *parts, job.compute_type)
        return CTranslate2Translator(converted, *settings, token_scores=job.format == "jsonl")
    dtype = _dtype(job.compute_type, device, special)
    return Translator(models[0], *parts, others=models[1:], dtype=dtype)


def _only_by_torch(job: TranslateJob, decode: DecodeConfig) -> list[str]:
    """The settings of the job that CTranslate2 does not know.

    Among them is ``step``: the converted model is kept for one set of weights, and would have to
    be written anew at each change.
    """
    used = {
        "step": job.step is not None,
        "ensemble": bool(job.ensemble),
        "prefix": job.prefix is not None,
        "score": job.score is not None,
        "min_length": decode.min_length > 0,
        "no_repeat_ngram": decode.no_repeat_ngram > 0,
        "sampling": decode.sampling,
    }
    return [key for key, is_used in used.items() if is_used]


def _fastest(compute_type: str, device: torch.device, model: Transformer) -> str:
    """What ``engine=auto`` means.

    On a CPU that is CTranslate2, where it is installed and can hold the model. In float32, with
    the same translations: int8 is faster still but changes some, so it has to be asked for. Half
    precision is torch's: on a CPU CTranslate2 has none.
    """
    if compute_type == "int8":
        return "ctranslate2"
    if compute_type != "float32" or device.type != "cpu" or find_spec("ctranslate2") is None:
        return "torch"
    try:
        check_shape(model.config)
    except InputError:
        return "torch"
    return "ctranslate2"


def _dtype(compute_type: str, device: torch.device, special: Sequence[str]) -> torch.dtype:
    """What torch computes in."""
    if compute_type == "int8":
        because = f", which cannot do {', '.join(special)}" if special else ""
        raise InputError(
            f"compute_type=int8 is only for engine=ctranslate2{because}: say float32 or bfloat16"
        )
    if compute_type == "float16" and device.type == "cpu":
        raise InputError("compute_type=float16 needs a GPU: on a CPU say float32 or bfloat16")
    dtypes = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    return dtypes[compute_type]
