"""The files of sacreBLEU's test sets, downloaded by sacreBLEU where they are not there yet."""

from pathlib import Path

from transformer_mt.errors import InputError


def testset_files(name: str, langs: str) -> tuple[Path, list[Path]]:
    """Source and references as ``sacrebleu -t name -l langs`` reads them.

    Args:
        name: Such as ``wmt14/full``; ``sacrebleu --list`` shows them all.
        langs: Source and target language, such as ``en-de``.

    Raises:
        InputError: There is no such set, or this machine does not have it and cannot get it.
    """
    # Here, for sacreBLEU takes its time, and the folder from the environment.
    from filelock import FileLock
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in DATASETS:
        raise InputError(f"testset={name}: sacreBLEU has no such test set (sacrebleu --list)")
    known = DATASETS[name].langpairs
    if langs not in known:
        raise InputError(f"testset={name} has no langs={langs}, only: {', '.join(sorted(known))}")
    folder = Path(SACREBLEU_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "transformer_mt.lock"):  # it writes its text files in place
            source = DATASETS[name].get_source_file(langs)
            references = DATASETS[name].get_reference_files(langs)
    except (Exception, SystemExit) as error:  # it exits where a download is damaged
        damaged = isinstance(error, SystemExit)
        reason = "damaged" if damaged else (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"testset={name} is not on this machine and cannot be downloaded "
            f"({reason}): check the connection, or copy {folder / name} from a machine that has it "
            "(another folder: SACREBLEU=FOLDER)"
        ) from error
    return Path(source), [Path(path) for path in references]
