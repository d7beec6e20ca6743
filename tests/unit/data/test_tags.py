"""Tags of data sources: in the vocabulary, in encoded pairs, in cleaning and in the cache."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.data_jobs import prepare_job, training_text, write_pairs
from support.errors import input_error
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt import run_layout
from transformer_mt.config import (
    CleaningConfig,
    DataConfig,
    ModelConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
)
from transformer_mt.conversion.marian_tokenizer import tokenizer_files
from transformer_mt.data.data_diagnostics import diagnose
from transformer_mt.data.prepare import prepare
from transformer_mt.data.subwords.tokenizer import Tokenizer, add_tags
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.data.text.sources import fingerprint, read_pairs
from transformer_mt.data.text.tags import check_tag
from transformer_mt.protocols import Pair

PLAIN = Normalizer(DataConfig(src_lang="en", tgt_lang="de"))


@pytest.fixture
def tsv(tmp_path: Path) -> str:
    lines = [(line, f"X {line.upper()}") for line in random_lines(60)]
    return str(write_pairs(tmp_path / "text.tsv", lines).tsv)


def job_of(tmp_path: Path, tsv: str, *tags: str | None, **more: Any) -> TrainJob:
    """A job with one training, validation and test source for each tag."""
    sources = [SourceConfig(tsv=tsv, tag=tag) for tag in tags]
    return prepare_job(
        tmp_path, **{"train": sources, "valid": sources, "test": sources, "vocab_size": 310, **more}
    )


def test_a_tag_is_one_id_before_the_pieces(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path / "m", tags=["<2de>", ">>fra<<"])
    assert tokenizer.tags == {"<2de>": 4, ">>fra<<": 5}
    text = tokenizer.encode("rote Haus")
    lines = ["<2de> rote Haus", ">>fra<<rote Haus", "rote Haus", "<2de>  ", "", "\t<2de> rot"]
    found = [tokenizer.encode_source(line, PLAIN) for line in lines]
    assert found[:5] == [[4, *text], [5, *text], text, [], []]
    # Anywhere else it is text, which no symbol stands for.
    middle = tokenizer.encode_source("rot <2de>", PLAIN)
    assert 4 not in middle + found[5] + tokenizer.encode("<2de> rot")
    assert list(map(tokenizer.decode, (middle, found[0]))) == ["rot <2de>", "rote Haus"]
    with input_error(r"<2es> is not in the vocabulary: it has <2de>, >>fra<<"):
        check_tag("<2es>", tokenizer.tags)
    with input_error("it has no tags at all"):
        check_tag("<2es>", {})


def test_a_tag_that_marian_takes_for_text_is_not_exported(tmp_path: Path) -> None:
    for name, tags in zip(run_layout.SIDE_TOKENIZERS, (["<law>"], []), strict=True):
        small_tokenizer(tmp_path / name, tags=tags)
    with input_error("takes the tag <law> for text"):
        tokenizer_files(Tokenizer(tmp_path), TrainJob(), 512)


def test_a_given_vocabulary_gets_the_tags_that_it_lacks(tmp_path: Path, tsv: str) -> None:
    """After its last piece; the segmentation of text stays."""
    old = small_tokenizer(tmp_path / "m")
    job = job_of(tmp_path, tsv, "<2de>", "<law>", None)
    job = replace(job, tokenizer=TokenizerConfig(path=str(tmp_path / "m")))
    data = prepare(job)
    new = Tokenizer(data.tokenizer_model)
    assert new.vocabulary == [*old.vocabulary, "<2de>", "<law>"]
    assert new.tags == {"<2de>": 290, "<law>": 291}
    assert all(new.encode(line) == old.encode(line) for line in random_lines(20))
    assert data.train.sample.src[0][0] == 290
    complete = TokenizerConfig(path=str(data.tokenizer_model))
    assert prepare(replace(job, tokenizer=complete)).tokenizer_model.name == run_layout.TOKENIZER
    test = replace(job.data, test=[SourceConfig(tsv=tsv, tag="<never>")])
    with input_error("tag=<never> is not in the vocabulary: it has <2de>"):
        prepare(replace(job, data=test))


def test_two_models_of_one_vocabulary_get_the_same_tags(tmp_path: Path) -> None:
    """As of a MarianMT model."""
    for name in run_layout.SIDE_TOKENIZERS:
        old = small_tokenizer(tmp_path / name)
    (tmp_path / "new").mkdir()
    add_tags(tmp_path, ["<law>"], tmp_path / "new")
    new = Tokenizer(tmp_path / "new")
    assert new.vocabulary == new.tgt.vocabulary == [*old.vocabulary, "<law>"]


def test_tagged_sources_are_encoded_with_their_tag(tmp_path: Path, tsv: str) -> None:
    data = prepare(job_of(tmp_path, tsv, "<2de>", "<2fr>", None))
    plain = prepare(job_of(tmp_path, tsv, None))
    assert training_text(data) == 3 * training_text(plain)
    first = [int(data.train.sample.src[i][0]) for i in range(180)]
    assert first[:120] == [4] * 60 + [5] * 60
    assert {4, 5}.isdisjoint(first[120:])
    assert data.valid[0].src == f"<2de> {plain.valid[0].src}"
    tokenizer = Tokenizer(data.tokenizer_model)
    ids = [data.valid_store.src[i].tolist() for i in (0, 60, 120)]
    assert [each[0] for each in ids[:2]] == [4, 5]
    assert ids[0][1:] == ids[1][1:] == ids[2]
    assert not [*diagnose(data.train.sample, data.valid_store, tokenizer)][1:]


def test_the_text_is_cleaned_without_the_tag(tmp_path: Path, tsv: str) -> None:
    pairs = ["ba ba ba\tx", "rot rot\tRot rot", "leer\t", "\tempty", "rot\trot rot rot", "a b\tc"]
    pairs += [f"rot\t{'rot ' * words}" for words in range(1, 20)]
    odd = tmp_path / "odd.tsv"
    odd.write_text("\n".join(pairs))

    def dropped(tag: str | None, cleaning: CleaningConfig) -> dict[str, int]:
        train = [SourceConfig(tsv=path, tag=tag) for path in (tsv, str(odd))]
        job = job_of(tmp_path, tsv, train=train, valid=train[1:], test=[], cleaning=cleaning)
        return dict(prepare(job).report["dropped"])

    # Counted as a token, a tag would change the ratio of some of the pairs.
    ratio = CleaningConfig(max_ratio=2)
    settings = replace(ratio, drop_identical=True, drop_held_out=True)
    several = ("empty", "identical", "set_aside")
    for cleaning, names in ((settings, several), (ratio, ("length_ratio",))):
        counts = dropped("<x>", cleaning)
        assert counts == dropped(None, cleaning)
        assert all(counts[name] for name in names)


def test_a_source_with_another_tag_is_no_duplicate(tmp_path: Path, tsv: str) -> None:
    cleaning = CleaningConfig(deduplicate="sources")
    job = job_of(tmp_path, tsv, "<x>", "<y>", "<x>", None, cleaning=cleaning)
    assert prepare(job).report["kept"] == 3 * len({*random_lines(60)})


def test_a_tagged_line_has_at_most_max_tokens(tmp_path: Path, tsv: str) -> None:
    short = str(write_pairs(tmp_path / "short.tsv", [(x, "X") for x in random_lines(60)]).tsv)
    longest = int(prepare(job_of(tmp_path, short, "<2de>")).train.sample.src.lengths.max())
    for limit in (longest, longest - 1):
        cleaning = CleaningConfig(max_tokens=limit)
        data = prepare(job_of(tmp_path, short, "<2de>", cleaning=cleaning))
        assert data.train.sample.src.lengths.max() <= limit
        assert bool(data.report["dropped"]["length"]) == (limit < longest)


def test_sources_without_tags_keep_their_fingerprint(tmp_path: Path, tsv: str) -> None:
    assert fingerprint(SourceConfig(tsv=tsv)).keys() == {"tsv"}
    plain, tagged = (prepare(job_of(tmp_path, tsv, tag)).fingerprints for tag in (None, "<x>"))
    assert {key for key in plain if plain[key] != tagged[key]} == {"corpus", "valid", "test"}
    other = prepare(job_of(tmp_path, tsv, "<y>")).fingerprints
    assert other["corpus"] == tagged["corpus"]  # the same ids, of another vocabulary
    assert other["valid"] != tagged["valid"]


def test_two_vocabularies_have_tags_in_that_of_the_source(tmp_path: Path, tsv: str) -> None:
    job = job_of(tmp_path, tsv, "<2de>")
    model = ModelConfig(tied_embeddings="decoder")
    two = TokenizerConfig(vocab_size=290, joint=False)
    data = prepare(replace(job, tokenizer=two, model=model))
    tokenizer = Tokenizer(data.tokenizer_model)
    assert (tokenizer.tags, tokenizer.tgt.tags) == ({"<2de>": 4}, {})
    assert data.train.sample.src[0][0] == 4
    given = replace(job, tokenizer=TokenizerConfig(path=str(data.tokenizer_model)))
    with input_error("one vocabulary for each language"):
        prepare(given)  # one table of embeddings for two sets of ids


def test_languages_of_a_source() -> None:
    source = SourceConfig(sample="test", tag="<2en>", src_lang="de", tgt_lang="en")
    data = DataConfig(src_lang="en", tgt_lang="de", train=[source, SourceConfig(sample="train")])
    languages = {"src_lang": "en", "tgt_lang": "de"}
    pair = next(read_pairs([SourceConfig(sample="test")], **languages))
    assert next(read_pairs(data.train, **languages)) == Pair(f"<2en> {pair.tgt}", pair.src)
    assert data.tags == {"<2en>": ("de", "en")}
    normalizer = Normalizer(data)
    assert (normalizer.languages("<2en>")[0], normalizer.languages()[0]) == ("de", "en")
