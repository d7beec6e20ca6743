"""Tagged back-translation (Sennrich et al. 2016; Caswell et al. 2019), from text to a better model.

    scripts/back_translate FOLDER --mono news.de.zst [OVERRIDES of mt-train]

    scripts/back_translate runs/bt --mono '{sample: train}' experiment=quickstart
    scripts/back_translate runs/bt --mono news.de.zst --reverse hf://Helsinki-NLP/opus-mt-de-en \\
        --config-dir runs/mine --config-name config      the data and settings of a run
    … reverse:model=small forward:model=base             for one of the two models
    … translate:sampling=true translate:top_k=10         of mt-translate: sample, not beam search
    … clean:cleaning=none                                of the monolingual text only

The steps, each an ordinary command (--dry-run prints them):

    reverse           train a model of the other direction on the parallel data
    clean             filter and de-duplicate the monolingual text (cleaning=standard)
    back-translate    translate it, one line for each
    pair              drop lines without a translation, with their pairs
    forward           train on the parallel data, and on these pairs with the tag <bt>

FOLDER receives the two run folders, reverse and forward, and the text in between. After an
interruption the same command resumes. Translate with FOLDER/forward, without a tag.
"""

from pathlib import Path

from recipe import (
    Overrides,
    Step,
    argument_parser,
    cache_settings,
    data_settings,
    held_out_settings,
    local_models,
    main,
    model_name,
    reversed_source,
    run_steps,
    source_files,
    text_source,
    train_job,
)

from transformer_mt import model_folder
from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.config.languages import may_be_same_language
from transformer_mt.errors import InputError


def back_translate() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder of all results")
    add("--mono", action="append", required=True, metavar="TEXT",
        help="text of the target language: a file, plain or compressed, or a data source, "
        "'{tsv: a.tsv}', whose target side is used; may be repeated")  # fmt: skip
    add("--reverse", type=model_name, metavar="MODEL",
        help="model of the other direction, trained before")  # fmt: skip
    add("--tag", default="<bt>",
        help="tag of the back-translated sources (default: <bt>); '': none")  # fmt: skip
    add("--weight", type=float, default=1.0,
        help="repetitions per epoch of each back-translated pair (default: 1)")  # fmt: skip
    add("--dry-run", action="store_true", help="print the commands, and stop")
    options, arguments = parser.parse_known_args()
    overrides = Overrides.parse(arguments, ["reverse", "clean", "translate", "forward"])
    folder, only = options.folder, overrides.only
    base = [*held_out_settings(overrides.common), *overrides.common]
    job = train_job(base)
    cache = cache_settings(job)
    data, src, tgt = job.data, job.data.src_lang, job.data.tgt_lang
    if src == tgt or not data.train:
        raise InputError("there is no parallel data: set data.train and the languages")

    steps = []
    reverse = options.reverse or str(folder / "reverse")
    if options.reverse is None:
        settings = {
            "run_dir": reverse,
            "data.src_lang": tgt,
            "data.tgt_lang": src,
            "data.train": list(map(reversed_source, data.train)),
            "data.valid": list(map(reversed_source, data.valid)),
            "data.test": [],
        }
        steps.append(
            Step(
                "reverse",
                ["mt-train", *base, *(override(*item) for item in settings.items()),
                 *only["reverse"]],
                Path(reverse),
                source_files([*data.train, *data.valid]),
            )
        )  # fmt: skip
    elif not options.dry_run:
        given = model_folder.read_config(model_folder.locate(reverse, job.cache_dir), TrainJob).data
        directions = {given.languages(), *given.tags.values()}
        if not any(all(map(may_be_same_language, pair, (tgt, src))) for pair in directions):
            found = ", ".join(map(" to ".join, directions))
            raise InputError(f"--reverse {reverse} translates {found}, not {tgt} to {src}")
    mono = [text_source(text) for text in options.mono]
    for path in () if options.dry_run else source_files(mono):  # before hours of training
        if not path.exists():
            raise InputError(f"--mono: there is no {path}")
    clean, translated = folder / f"mono.{tgt}", folder / f"back_translated.{src}"
    pairs = folder / "back_translated.tsv"
    limit = override("data.cleaning.max_tokens", data.cleaning.max_tokens)
    steps += [
        Step(
            "clean",
            ["clean_text.py", str(clean), "--model", reverse, *data_settings(data, mono),
             "cleaning=standard", limit, *cache, *only["clean"]],
            clean,
            source_files([*mono, *data.valid, *data.test]),
        ),
        Step(
            "back-translate",
            ["mt-translate", override("model", reverse), override("input", clean),
             override("output", translated), "compute_type=fast", *only["translate"]],
            translated,
            [clean, *local_models([reverse])],
        ),
        Step(
            "pair",
            ["pair_translations.py", str(clean), str(translated), str(pairs), "--reverse"],
            pairs,
            [clean, translated],
        ),
    ]  # fmt: skip
    synthetic = SourceConfig(tsv=str(pairs), tag=options.tag or None)
    train = [override("data.train", [*data.train, synthetic])]
    if data.weights or options.weight != 1:
        weights = [*(data.weights or [1.0] * len(data.train)), options.weight]
        train.append(override("data.weights", weights))
    forward = folder / "forward"
    train = [*base, override("run_dir", forward), *train, *only["forward"]]
    # Refuses what is wrong before the other steps; model=auto would read what they write.
    train_job([text for text in train if text != "model=auto"])
    steps.append(
        Step(
            "forward",
            ["mt-train", *train],
            forward,
            source_files([*data.train, *data.valid, *data.test, synthetic]),
        )
    )
    run_steps(folder, steps, dry_run=options.dry_run)


if __name__ == "__main__":
    main(back_translate)
