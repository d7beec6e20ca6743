"""Sequence-level knowledge distillation (Kim and Rush 2016): a small, fast student of a model.

    scripts/distill FOLDER --teacher MODEL [OVERRIDES of mt-train, for the student]

    scripts/distill runs/fast --teacher runs/mine model=student train.max_hours=2
    scripts/distill runs/fast --teacher runs/mine train.init_from=runs/mine \\
       model.num_decoder_layers=1 schedule=linear …      start from layers of the teacher
    scripts/distill runs/fast --teacher runs/a --teacher runs/b …      an ensemble, one vocabulary
    scripts/distill runs/fast --teacher hf://Helsinki-NLP/opus-mt-en-de data=files 'data.train=…' …
    … --nbest 4                of four translations take the one that is closest to the reference
    … --keep 0.95              drop the pairs with the worst 5% of scores
    … --originals              train on the original pairs as well
    … translate:beam_size=8    an override of the step translate
    … clean:cleaning=standard  an override of the step clean

The steps, each an ordinary command (--dry-run prints them):

    clean        write the teacher's training pairs as text, each source once
    translate    translate the sources with the teacher
    pair         pair sources with translations; drop those that are empty or have a bad score
    student      train on them, with the teacher's vocabulary
    export       write the student, and the teachers, for CTranslate2 in int8
    shortlist    list the target pieces of each source piece, which makes the student faster
    report       measure size, start-up time, speed and scores of all

Training, validation and test sets, languages, cleaning and normalisation are the teacher's, unless
data=, experiment= or --config-name is given. FOLDER receives all results; FOLDER/student_int8 is
what to deploy. After an interruption the same command resumes. CTranslate2 must be installed.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from recipe import (
    Overrides,
    Step,
    argument_parser,
    cache_settings,
    cleaning_settings,
    data_settings,
    local_models,
    main,
    model_name,
    run_steps,
    source_files,
    train_job,
)

from transformer_mt import model_folder
from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig, TrainJob
from transformer_mt.data.held_out import with_written_sets
from transformer_mt.data.subwords.tokenizer import vocabulary_files
from transformer_mt.errors import InputError


def distill() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="folder of all results")
    add("--teacher", action="append", required=True, type=model_name, metavar="MODEL",
        help="model folder, or hf://ORG/NAME; several are an ensemble")  # fmt: skip
    add("--nbest", type=int, default=1, help="translations to choose from (default: 1)")
    add("--keep", type=float, default=1.0, metavar="SHARE",
        help="share of the pairs to keep, by the teacher's score (default: 1)")  # fmt: skip
    add("--originals", action="store_true", help="train on the original pairs, too")
    add("--dry-run", action="store_true", help="print the commands, and stop")
    options, arguments = parser.parse_known_args()
    if not 0 < options.keep <= 1:
        raise InputError(f"--keep {options.keep} must be above 0 and at most 1")
    if find_spec("ctranslate2") is None:
        raise InputError("the student is exported for CTranslate2: pip install ctranslate2")
    overrides = Overrides.parse(arguments, ["clean", "translate"])
    folder, only, (teacher, *ensemble) = options.folder, overrides.only, options.teacher
    path = model_folder.locate(teacher)
    trained = model_folder.read_config(path, TrainJob)
    trained = replace(trained, data=with_written_sets(trained.data, path))
    base = list[str]()
    given = {text.partition("=")[0] for text in overrides.common}
    if not given & {"data", "experiment", "--config-name", "-cn"}:
        base = data_settings(trained.data, trained.data.train) + cleaning_settings(trained.data)
        base.append(override("data.weights", trained.data.weights))
    base += overrides.common
    base += [] if trained.tokenizer.joint else ["tokenizer.joint=false"]
    job = train_job(base)  # refuses what is wrong, before the steps
    data, cache = job.data, cache_settings(job)
    if not (data.train and data.valid):
        missing = "validation" if data.train else "training"
        raise InputError(
            f"there is no {missing} data: set data=files 'data.train=[…]' 'data.valid=[…]' …"
        )
    text = [*data_settings(data, data.train), *cleaning_settings(data), *cache]
    sources, references = folder / f"train.{data.src_lang}", folder / f"train.{data.tgt_lang}"
    translations, pairs = folder / "translations.jsonl", folder / "distilled.tsv"
    student, exported = folder / "student", folder / "student_int8"

    translate = [override("model", teacher), override("input", sources)]
    translate += [override("output", translations), "format=jsonl", "compute_type=fast"]
    translate += [override("ensemble", ensemble)] if ensemble else []
    translate += [override("nbest", options.nbest)] if options.nbest > 1 else []
    select = ["--closest-to", str(references)] if options.nbest > 1 else []
    select += ["--keep", str(options.keep)] if options.keep < 1 else []

    train, vocabulary = list[str](), vocabulary_files(path)
    if job.train.init_from is None:  # otherwise that model's vocabulary
        train.append(override("tokenizer.path", vocabulary[0] if len(vocabulary) == 1 else path))
    distilled = SourceConfig(tsv=str(pairs))
    mixed = [distilled, *(data.train if options.originals else [])]
    weights = [1.0, *data.weights] if options.originals and data.weights else []
    train += [override("data.train", mixed), override("data.weights", weights)]
    base = [text for text in base if not text.startswith(("data.train=", "data.weights="))]

    models = {student: exported}
    for number, model in enumerate(options.teacher, 1):
        models[model] = folder / f"teacher{number if ensemble else ''}_int8"
    steps = [
        Step(
            "clean",
            ["clean_text.py", str(references), "--source", str(sources), "--model", teacher, *text,
             "data.cleaning.deduplicate=sources", *only["clean"]],
            sources,  # appears last
            source_files([*data.train, *data.valid, *data.test]),
        ),
        Step(
            "translate",
            ["mt-translate", *translate, *only["translate"]],
            translations,
            [sources, *local_models(options.teacher)],
        ),
        Step(
            "pair",
            ["pair_translations.py", str(sources), str(translations), str(pairs), *select],
            pairs,
            [sources, references, translations],
        ),
        Step(
            "student",
            ["mt-train", *base, *train, override("run_dir", student)],
            student,
            source_files([*mixed, *data.valid, *data.test]),
        ),
        *(
            Step(
                f"export {model}",
                ["mt-export", override("model", model), "format=ctranslate2", "compute_type=int8",
                 override("output", output)],
                output,
                local_models([str(model)]),
            )
            for model, output in models.items()
        ),
    ]  # fmt: skip
    vmap = exported / "vmap.txt"
    steps.append(
        Step(
            "shortlist",
            ["shortlist.py", str(pairs), str(vmap), "--model", str(student)],
            vmap,
            [pairs, exported / "model.bin"],
        )
    )
    report = ["student_report.py", str(folder / "report.json"), "--run", str(student)]
    for model, output in models.items():
        report += ["--model", str(model), str(output)]
    steps.append(
        Step(
            "report",
            report,
            folder / "report.json",
            [vmap, *(output / "model.bin" for output in models.values())],
        )
    )
    run_steps(folder, steps, dry_run=options.dry_run)


if __name__ == "__main__":
    main(distill)
