import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import pyarrow as pa
import pytest
from omegaconf import OmegaConf
from support.errors import input_error
from support.sample import translations, write_parquet, write_wmt14

from transformer_mt.config import CONFIG_DIR, DataConfig, SourceConfig
from transformer_mt.data.text.sources import SAMPLE_VERSION, fingerprint, read_pairs
from transformer_mt.protocols import Pair

ROW = '{"en": "a", "de": "b"}'
HELLO = [("Hello.", "Hallo."), ("", ""), ("A\u2028b\tc", "Ä\x85 ö")]


def pairs(*sources: SourceConfig, langs: str = "en-de") -> list[tuple[str, str]]:
    src_lang, tgt_lang = langs.split("-")
    return list(read_pairs(sources, src_lang=src_lang, tgt_lang=tgt_lang))


def error_of(*sources: SourceConfig, langs: str = "en-de") -> str:
    with input_error() as caught:
        pairs(*sources, langs=langs)
    return str(caught.value)


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def text(tmp_path: Path, en: str, de: str) -> SourceConfig:
    return SourceConfig(src=write(tmp_path / "a.en", en), tgt=write(tmp_path / "a.de", de))


def test_text_files_keep_blank_lines_and_order(tmp_path: Path) -> None:
    one = text(tmp_path, "Hello.\n\n \nA\u2028b", "Hallo.\r\n\r\n\r\nÄ\x85ö\r\n")
    two = SourceConfig(tsv=write(tmp_path / "b.tsv", "e\tf\n"))
    expected = [("Hello.", "Hallo."), ("", ""), (" ", ""), ("A\u2028b", "Ä\x85ö")]
    found = pairs(one, two, one)
    assert found == [*expected, ("e", "f"), *expected]
    assert all(isinstance(pair, Pair) for pair in found)


@pytest.mark.parametrize(("src", "tgt"), [(10, 13), (13, 10), (0, 1)])
def test_unequal_files_give_both_counts(tmp_path: Path, src: int, tgt: int) -> None:
    source = text(tmp_path, "x\n" * src, "y\n" * tgt)
    assert f"{source.src} has {src} lines but {source.tgt} has {tgt}:" in error_of(source)


def test_tsv_is_raw_and_its_columns_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", '"Hi," he\tHallo "er\tCC-BY\t1\r\n\t\t\t\n\na\tb\tc\td\n\r\n')
    assert pairs(SourceConfig(tsv=path)) == [('"Hi," he', 'Hallo "er'), ("", ""), ("a", "b")]
    other = SourceConfig(tsv=path, src_column="4", tgt_column="2")
    assert pairs(other) == [("1", 'Hallo "er'), ("", ""), ("d", "b")]
    twice = error_of(SourceConfig(tsv=path, src_column="2"))
    assert "source and target are both column 2; set src_column and tgt_col" in twice


def jsonl(tmp_path: Path, *lines: object, **columns: str) -> SourceConfig:
    rows = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return SourceConfig(jsonl=write(tmp_path / "a.jsonl", "\n".join(rows)), **columns)


def test_jsonl_forms(tmp_path: Path) -> None:
    source = jsonl(
        tmp_path,
        {"id": 1, "translation": {"en": "Hello.", "de": "Hallo.", "fr": None}},
        {"de": "", "en": ""},
        " ",
        '{"en": "A\u2028b\\tc", "de": "Ä\\u0085 ö"}',
    )
    assert pairs(source) == HELLO
    assert pairs(source, langs="de-en") == [(de, en) for en, de in HELLO]
    row = {"text": "a", "ref": "b", "en": "c", "de": "d"}
    assert pairs(jsonl(tmp_path, row, src_column="text", tgt_column="ref")) == [("a", "b")]
    assert pairs(jsonl(tmp_path, row, src_column="text")) == [("a", "d")]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a\r\nb\n\nc", "a b  c"),
        ("\r\na\r\n", "a"),
        (" a\rb\r", " a\rb\r"),
        ("a\v\x85 ", "a\v\x85 "),
    ],
)
def test_line_feeds_within_a_sentence_become_spaces(tmp_path: Path, value: str, line: str) -> None:
    row = {"en": value, "de": "x"}
    assert pairs(jsonl(tmp_path, row)) == [(line, "x")]
    path = write_parquet(tmp_path / "a.parquet", {key: [text] for key, text in row.items()})
    assert pairs(SourceConfig(parquet=path)) == [(line, "x")]


@pytest.mark.parametrize(
    ("kind", "first", "line", "message"),
    [
        ("tsv", "a\tb", "only one", "has 1 tab-separated column(s), needs 2: correct or delete"),
        # With a tab inside a sentence, columns 1 and 2 would be another pair.
        ("tsv", "a\tb\tc", '"A\ttab"\tb\tc', "has 4 tab-separated column(s), line 1 has 3"),
        ("jsonl", ROW, '{"en": "a", "de": ', " is damaged: Expecting value"),
        ("jsonl", ROW, r'{"en": "\ud83d", "de": "a"}', " is damaged: 'utf-8' codec can't encode"),
        ("jsonl", ROW, '["a", "b"]', " is damaged: not a JSON object but of type list; a line"),
        ("jsonl", ROW, '{"en": "a", "fr": "b"}', "no column 'de', only: en, fr;"),
        ("jsonl", ROW, '{"en": "a", "de": null}', "de is null, not text"),
        ("jsonl", ROW, '{"translation": {"en": []}, "de": "b"}', "translation.en is of type list"),
    ],
)
def test_an_invalid_line(tmp_path: Path, kind: str, first: str, line: str, message: str) -> None:
    path = write(tmp_path / "a", f"{first}\n{line}\n{first}")
    place = f"{path}, line 2" if message.startswith(" ") else f"{path}, line 2: "
    assert error_of(SourceConfig(**{kind: path})).startswith(f"{place}{message}")


def test_parquet_forms(tmp_path: Path) -> None:
    nested = SourceConfig(parquet=write_parquet(tmp_path / "a.parquet", translations(HELLO)))
    en, de = zip(*HELLO, strict=True)
    columns = {"id": [1, 2, 3], "de": de, "en": pa.array(en, pa.large_string())}
    flat = SourceConfig(parquet=write_parquet(tmp_path / "b.parquet", columns))
    assert pairs(nested) == pairs(flat) == HELLO
    assert pairs(nested, flat, langs="de-en") == [(de, en) for en, de in HELLO] * 2


def test_parquet_in_many_row_groups_and_batches(tmp_path: Path) -> None:
    en: list[str | None] = [f"en {i}" for i in range(66_000)]
    columns = {"en": en, "de": [f"de {i}" for i in range(66_000)]}
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=65_800)
    assert pairs(SourceConfig(parquet=path)) == list(zip(*columns.values(), strict=True))
    en[65_799] = None
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=1000)
    assert f"{path}, row 65800: en is null, not text: " in error_of(SourceConfig(parquet=path))


def test_invalid_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"id": [1], **translations([("a", "b")])})
    source = SourceConfig(parquet=path)
    numbers = SourceConfig(parquet=path, src_column="id")
    assert error_of(numbers).startswith(f"{path}, row 1: id is of type int, not text: correct or")
    missing = SourceConfig(parquet=str(tmp_path / "none.parquet"))
    assert error_of(missing) == f"cannot read {missing.parquet}: No such file or directory"
    for data in (b"a\tb\n" * 9, Path(path).read_bytes()[:-9], b""):
        Path(path).write_bytes(data)
        assert error_of(source).startswith(f"{path} is damaged: Parquet ")
    latin = pa.array(["B\xe4r".encode("latin1")], pa.binary()).view(pa.string())
    write_parquet(Path(path), {"en": ["bear"], "de": latin})
    assert error_of(source).startswith(f"{path} is not valid UTF-8 (byte 0xE4 at")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


SPLITS = {"train": HELLO * 5000, "validation": HELLO, "test": HELLO[:1]}


def test_hub_folder_with_some_configs(hub_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_wmt14(hub_cache / "wmt14", **SPLITS)
    german = SourceConfig(hub=folder, config="de-en", split="validation", revision="v1")
    assert pairs(*(replace(german, split=split) for split in SPLITS)) == HELLO * 5001 + HELLO[:1]
    french = SourceConfig(hub=folder, config="fr-en", split="train")
    assert pairs(french, langs="fr-en") == [("b", "a")]
    assert "no column 'de', only: translation.en, translation.fr" in error_of(french)
    assert capfd.readouterr().out == ""
    wrong = replace(german, split="dev")
    assert re.match(f"cannot load {re.escape(str(wrong))} .*data.mirror=", error_of(wrong))
    Path(folder, "README.md").unlink()
    assert pairs(german) == HELLO


def test_a_single_split_that_was_saved_to_disk(hub_cache: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_dict(translations(HELLO))
    rows.save_to_disk(hub_cache / "saved", num_shards=2)
    for split in ("train", "validation"):
        source = SourceConfig(hub=str(hub_cache / "saved"), split=split)
        assert pairs(source) == HELLO
        assert pairs(replace(source, split=f"{split}[:1]")) == HELLO[:1]


def mirrored(mirror: Path) -> DataConfig:
    part = [SourceConfig(hub="wmt/wmt14", config="de-en", split="test", revision="v1")]
    return DataConfig(src_lang="en", tgt_lang="de", train=part, valid=part, mirror=str(mirror))


def test_a_mirror_holds_the_datasets_of_the_hub(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wmt14(hub_cache / "hub/wmt/wmt14", **SPLITS)
    data = mirrored(hub_cache / "hub")
    assert pairs(*data.train) == pairs(*data.valid) == HELLO[:1]
    direct = SourceConfig(hub=str(hub_cache / "hub/wmt/wmt14"), config="de-en", split="test")
    assert [fingerprint(source) for source in data.train] == [fingerprint(direct)]
    assert (data.mirror, replace(data, workers=1).train) == (None, data.train)
    monkeypatch.chdir(hub_cache)
    assert mirrored(Path("hub")) == data
    others = [replace(direct, config=None), SourceConfig(tsv="a.tsv"), NEWSTEST]
    data = DataConfig(src_lang="en", tgt_lang="de", train=others, valid=others, mirror="/hub")
    assert data.train == others
    # Known only when it is read: a model folder is opened anywhere.
    assert "there is no such folder" in error_of(*mirrored(hub_cache / "none").train)


NEWSTEST = SourceConfig(testset="wmt19", langs="en-de")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(URLError("no route"), "<urlopen error no route>"), (SystemExit(1), "damaged")],
)
def test_a_testset_is_read_from_the_folder_of_sacrebleu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str
) -> None:
    """Where it cannot be downloaded, the message says that it may be copied there."""
    from sacrebleu import utils
    from sacrebleu.dataset import DATASETS

    wmt19, folder = DATASETS["wmt19"], tmp_path / "wmt19"
    monkeypatch.setattr(utils, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(wmt19, "_outdir", str(folder))
    monkeypatch.setattr(wmt19, "_rawdir", str(folder / "raw"))
    monkeypatch.setattr("urllib.request.urlopen", Mock(side_effect=error))
    message = "testset=wmt19 is not on this machine and cannot be downloaded"
    assert f"{message} ({reason}): check the connection, or copy {folder} " in error_of(NEWSTEST)
    columns = {"src": "A b.\nC &amp; d.\n", "ref": "Ä b.\nC.\n"}
    for column in wmt19.fieldnames("en-de"):
        write(folder / f"wmt19.en-de.{column}", columns.get(column, "x\nx\n"))
    (tmp_path / "transformer_mt.lock").unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)  # as on a read-only disk
    assert pairs(NEWSTEST) == [("A b.", "Ä b."), ("C &amp; d.", "C.")]
    assert not (tmp_path / "transformer_mt.lock").exists()
    assert fingerprint(NEWSTEST) == {"testset": "wmt19", "langs": "en-de"}


def test_wrong_names_of_a_testset() -> None:
    unknown = SourceConfig(testset="wmt99", langs="en-de")
    assert "testset=wmt99: sacreBLEU has no such test set" in error_of(unknown)
    other = SourceConfig(testset="wmt19", langs="en-xx")
    assert "testset=wmt19 has no langs=en-xx, only: " in error_of(other, langs="en-xx")
    assert "does not translate from de to en" in error_of(NEWSTEST, langs="de-en")
    assert "does not translate from en to fr" in error_of(NEWSTEST, langs="en-fr")


def test_sample_in_both_directions() -> None:
    source = SourceConfig(sample="valid")
    english_german = pairs(source)
    assert len(english_german) == 500
    assert english_german[0][0].isascii()
    assert pairs(source, langs="de-en") == [(de, en) for en, de in english_german]
    assert "it has no en-fr" in error_of(source, langs="en-fr")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "this one has: none"),
        ({"src": "a"}, r"\{src: a\} needs tgt"),
        ({"hub": "a"}, r"needs split, e\.g\. split: train"),
        ({"tsv": "a", "split": "train"}, "split belongs to a source of kind hub"),
        ({"tsv": "a", "tgt_column": "de"}, "tgt_column='de': a TSV column is a number"),
        ({"tsv": "a", "tag": "2fr"}, "tag='2fr': a tag is written <…> or >>…<<"),
        ({"tsv": "a", "tag": "<unk>"}, "a tag is written"),
        ({"tsv": "a", "tgt_lang": "fr"}, "needs a tag, which tells the model .* as tag: <2fr>"),
        ({"tsv": "a", "tag": "<x>", "tgt_lang": "en"}, "are both 'en'"),
        ({"tsv": "a", "tag": "<2de>", "tgt_lang": "fr"}, "another .* this tag has tgt_lang=de"),
    ],
)
def test_invalid_sources(values: dict[str, str], message: str) -> None:
    with input_error(message):
        train = [SourceConfig(tsv="b", tag="<2de>"), SourceConfig(**values)]
        DataConfig(src_lang="en", tgt_lang="de", train=train)


def test_fingerprint_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = text(tmp_path, "a\n", "b\n")
    found, status = fingerprint(source), (tmp_path / "a.en").stat()
    path = str(tmp_path / "a.en")
    assert found["src"] == {"path": path, "size": 2, "mtime_ns": status.st_mtime_ns}
    assert json.loads(json.dumps(found)) == found
    monkeypatch.chdir(tmp_path)
    assert fingerprint(SourceConfig(src="a.en", tgt="./a.de")) == found
    os.utime(tmp_path / "a.de", ns=(0, 1))
    assert fingerprint(source) != found
    for kind in ("tsv", "csv", "jsonl", "parquet", "tmx"):
        swapped = SourceConfig(**{kind: path}, src_column="2", tgt_column="1")
        assert fingerprint(SourceConfig(**{kind: path})) != fingerprint(swapped)
    with input_error(r"cannot read .*none\.tsv: No such file"):
        fingerprint(SourceConfig(tsv=str(tmp_path / "none.tsv")))


def test_fingerprint_of_hub_folder_and_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"hub": "wmt/none", "config": "de-en", "split": "train", "revision": "v1"}
    assert fingerprint(SourceConfig(**names)) == names
    source = SourceConfig(hub=write_wmt14(tmp_path, **SPLITS), config="de-en", split="train")
    first = fingerprint(source)
    assert json.loads(json.dumps(first)) == first == fingerprint(source)
    assert {Path(file["path"]).name for file in first["hub"]} >= {"README.md"}
    monkeypatch.chdir(tmp_path.parent)
    relative = replace(source, hub=tmp_path.name)
    assert fingerprint(relative) == first
    assert relative.with_absolute_paths() == source
    write_parquet(tmp_path / "de-en/train-00000-of-00001.parquet", translations(HELLO))
    assert first != fingerprint(source)
    sample = {"sample": "train", "version": SAMPLE_VERSION}
    assert fingerprint(SourceConfig(sample="train")) == sample


WMT = ["wmt14_en_de", "wmt14_en_de_t2t", "wmt16_en_de", "wmt19_en_de"]


@pytest.mark.parametrize("name", [*WMT, "iwslt14_de_en", "multi30k"])
def test_data_configs_pin_one_revision_of_a_dataset(name: str) -> None:
    data: Any = OmegaConf.load(CONFIG_DIR / f"data/{name}.yaml")
    sources = [*data.train, *data.valid, *data.test]
    if name == "wmt19_en_de":
        assert SourceConfig(**sources.pop()) == NEWSTEST
    assert tuple(source.split for source in sources) == (*SPLITS,)[: len(sources)]
    (revision,) = {source.revision for source in sources}
    assert re.fullmatch("[0-9a-f]{40}", revision)
