"""One model with two target languages, which tags choose: trained, scored, exported, fine-tuned."""

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support import training_runs
from support.model_folders import load_folder
from support.training_runs import Running

from transformer_mt import Translator, export
from transformer_mt.config import ExportJob
from transformer_mt.model_folder import ModelFolder

WORDS = {
    "red": ("rot", "rouge"),
    "dog": ("hund", "chien"),
    "big": ("groß", "grand"),
    "cat": ("katze", "chat"),
    "sees": ("sieht", "voit"),
    "tree": ("baum", "arbre"),
}
TAGS = ("<2de>", ">>fra<<")
LANGUAGES = ("de", "fr")
RECIPE = [
    "model.d_model=32", "model.d_ff=64", "model.norm=pre", "model.dropout=0",
    "tokenizer.vocab_size=300", "schedule=linear", "schedule.peak_lr=0.01",
    "train.batch_tokens=300", "train.max_steps=240", "train.checkpoint_every=120",
    "train.validate_every=240", "train.average_checkpoints=1", "data.workers=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    rng = random.Random(1)
    for part, number in (("train", 300), ("valid", 10), ("test", 12)):
        lines = [rng.choices([*WORDS], k=rng.randint(1, 4)) for _ in range(number)]
        for i, language in enumerate(LANGUAGES):
            rows = (f"{' '.join(line)}\t{' '.join(WORDS[w][i] for w in line)}\n" for line in lines)
            (folder / f"{part}.{language}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


def sources(folder: Path, part: str, tags: tuple[str, ...] = TAGS) -> str:
    languages = zip(tags, LANGUAGES, strict=False)
    each = [
        f'{{tsv: {folder}/{part}.{language}.tsv, tag: "{tag}", tgt_lang: {language}}}'
        for tag, language in languages
    ]
    return f"data.{part}=[{', '.join(each)}]"


def arguments(folder: Path, run_dir: Path, *more: str) -> list[str]:
    parts = [sources(folder, part) for part in ("train", "valid", "test")]
    return training_runs.arguments(folder, run_dir, *parts, *RECIPE, *more)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with both tags. Do not change it."""
    run = Running("train", arguments(folder, folder / "run"), tmp_path_factory.mktemp("o") / "out")
    out, _ = run.done()
    assert [line.split()[1] for line in out.splitlines() if line.startswith("BLEU <")] == ["<2de>"]
    assert "BLEU >>fra<<" in out
    return folder / "run"


LINES = ["red dog", "", "big cat sees", "tree"]


def test_each_tag_chooses_its_language(trained: Path, tmp_path: Path) -> None:
    scores = json.loads((trained / "test.json").read_text(encoding="utf-8"))
    assert {(row["name"], row["tag"]) for row in scores} >= {("BLEU", tag) for tag in TAGS}
    assert all(row["segments"] == 12 for row in scores)
    translator, expected = Translator.load(trained, device="cpu"), list[str]()
    for i, tag in enumerate(TAGS):
        (chrf,) = (row for row in scores if (row["name"], row["tag"]) == ("chrF2", tag))
        assert chrf["score"] > 60
        protocols = [row["signature"] for row in scores if row["tag"] == tag]
        assert any(f"sacremoses-{LANGUAGES[i]}" in signature for signature in protocols)
        lines = translator.translate(LINES, tag)
        assert (len(lines), lines[1]) == (4, "")
        known = {words[i] for words in WORDS.values()}
        assert {word for line in lines for word in line.split()} <= known
        expected += lines
    # A tag in the line goes before that of the command.
    text = "".join(f"{line}\n" for line in [*LINES, *(f"{TAGS[1]} {line}" for line in LINES)])
    (tmp_path / "in").write_text(text, encoding="utf-8")
    argv = [f"model={trained}", f"input={tmp_path}/in", "device=cpu", 'tag="<2de>"']
    out, _ = Running("translate", argv, tmp_path / "o").done()
    assert out.split("\n")[:-1] == expected


def test_engines_agree_and_an_export_has_the_same_ids(trained: Path, tmp_path: Path) -> None:
    text = [f"{tag} {line}" for tag in TAGS for line in LINES]
    options = {"device": "cpu", "length_penalty": 0}
    expected = Translator.load(trained, engine="torch", **options).translate(text)
    assert Translator.load(trained, engine="ctranslate2", **options).translate(text) == expected
    import transformers

    exported = tmp_path / "exported"
    export(ExportJob(model=str(trained), format="transformers", output=str(exported)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    ours = ModelFolder(trained).tokenizer
    for line in filter(None, LINES):
        for tag in TAGS:
            ids = tokenizer(f"{tag} {line}").input_ids
            assert ids[:-1] == [ours.tags[tag], *ours.encode(line)]


def test_fine_tuning_adds_a_tag(folder: Path, trained: Path, tmp_path: Path) -> None:
    old, tokenizer, _ = load_folder(trained)
    tags = ("<law>",)
    more = [*(sources(folder, part, tags) for part in ("train", "test"))]
    more += [f"data.valid=[{{tsv: {folder}/valid.de.tsv}}]"]
    drop = ("tokenizer.", "model.", "model=", "schedule", "data.t", "data.v")
    kept = [each for each in arguments(folder, tmp_path / "law") if not each.startswith(drop)]
    argv = [*kept, "data.tgt_lang=de", *more, f"train.init_from={trained}", "schedule=linear"]
    rate = ["schedule.peak_lr=1e-9", "train.max_steps=3"]
    out, err = Running("train", [*argv, *rate], tmp_path / "o").done()
    assert "BLEU <law>" in out
    (warning,) = (line for line in err.splitlines() if "no tag" in line)
    assert warning.startswith("warning: data.valid: 10 line(s) have no tag, but ")
    new, extended, job = load_folder(tmp_path / "law")
    assert extended.vocabulary == [*tokenizer.vocabulary, "<law>"]
    assert job.tokenizer.vocab_size == 301
    weight = load_file(tmp_path / "law/model.safetensors")["embedding.weight"]
    assert torch.allclose(weight[:300], old.embedding.weight, atol=1e-6)
    assert torch.allclose(weight[300], old.embedding.weight.mean(0), atol=1e-6)
    assert new.vocab_size == 301
    # Resumed, it needs neither the first model's vocabulary nor the cache.
    resumed = [each.replace(f"{folder}/cache", f"{tmp_path}/cache") for each in argv]
    resumed += [rate[0], "train.max_steps=5"]
    Running("train", resumed, tmp_path / "p").done()
    assert ModelFolder(tmp_path / "law").tokenizer.vocabulary == extended.vocabulary
