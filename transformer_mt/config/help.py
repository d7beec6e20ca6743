"""Text of ``--help`` of the commands, for 80 columns.

Settings, defaults and meanings come from the config dataclasses, groups from ``configs/``; only the
titles and examples are written here.
"""

import textwrap
from collections.abc import Iterable, Iterator

from transformer_mt.config.settings import (
    PROGRAMS,
    Command,
    Section,
    first_sentence,
    groups,
    sections,
    source_settings,
)

WIDTH = 80
_COLUMN = 30  # where descriptions begin

_HEADERS: dict[Command, str] = {
    "train": r"""
mt-train: train a Transformer translation model, from text to a model folder.

Examples
  mt-train                                  # the paper: base model, WMT14 en-de
  mt-train experiment=quickstart            # built-in sample, minutes on a CPU
  mt-train experiment=table3/C_layers_2     # a row of the paper's Table 3
  mt-train run_dir=runs/mine data=files data.src_lang=en data.tgt_lang=de \
    'data.train=[{src: a.en.gz, tgt: a.de.gz}, {tsv: b.tsv}]' \
    'data.valid=[{src: dev.en, tgt: dev.de}]' 'data.test=[]'
  mt-train model=small train.precision=bf16 tokenizer.vocab_size=8000
  mt-train -m model=tiny,small              # a sweep: two runs, a folder each
Run the same command again to resume from the last checkpoint in run_dir.
""",
    "translate": r"""
mt-translate: translate with a model folder, one line out for each line in.

Examples
  mt-translate model=runs/mine < in.en > out.de
  mt-translate model=runs/mine input=in.en output=out.de
  mt-translate model=runs/mine beam_size=8 length_penalty=1.0 < in.en
  mt-translate model=runs/mine nbest=4 format=jsonl < in.en
  mt-translate model=runs/mine engine=ctranslate2 compute_type=int8 < in.en
  mt-translate model=runs/mine 'ensemble=[runs/b,runs/c]' < in.en
  mt-translate model=runs/mine sampling=true top_k=10 seed=2 < in.en
  mt-translate model=runs/mine score=out.de < in.en
  torchrun --nproc-per-node=8 -m transformer_mt.cli.translate \
    model=runs/mine input=in.en output=out.de
  mt-translate model=runs/mine 'input="a, b.en"'   # quote , = and spaces twice
With input and output files, run the same command again to resume.
""",
    "evaluate": r"""
mt-eval: score translations with sacreBLEU.

Examples
  mt-eval model=runs/mine                            # the model's own test set
  mt-eval model=runs/mine testset=wmt14/full         # a sacreBLEU test set
  mt-eval model=runs/mine subset=valid length_penalty=1.0 step=12000
  mt-eval model=runs/mine report=report.html         # an HTML report
  mt-eval model=runs/mine attention="They left ." attention_html=a.html
  mt-eval 'hypotheses=[out.de]' 'references=[ref1.de, ref2.de]'
  mt-eval 'hypotheses=[old.de, new.de]' 'references=[ref.de]' source=src.en
  mt-eval 'hypotheses=[out.de]' testset=wmt14/full langs=en-de format=json
Set either model, or hypotheses with references or testset.
""",
    "export": r"""
mt-export: convert a model folder to the format of another library.

Examples
  mt-export model=runs/mine format=transformers output=exports/mine
  mt-export model=runs/mine format=ctranslate2 compute_type=int8 output=ct2/mine
  mt-export model=runs/mine format=hub output=hub/mine
The output folder must be new or empty.
""",
}

_EXIT_STATUS = """Exit status: 0 done, 1 bad input or environment, 2 bad usage,
130 and 143 interrupted (Ctrl-C, SIGTERM)."""


def help_text(command: Command) -> str:
    """Examples, every setting with its default, and the groups of a command."""
    blocks = [[_HEADERS[command].strip("\n")], *map(_section, sections(command))]
    if command == "train":
        title = "Data sources, the items of data.train, data.valid and data.test"
        rows = _rows((s.key, first_sentence(s.meaning)) for s in source_settings())
        options = _rows(_options(*group) for group in groups(command).items())
        blocks.append([title, *rows])
        blocks.append(["Groups (GROUP=OPTION; the first option is the default)", *options])
    blocks += [["More", *_rows(_flags(PROGRAMS[command]))], [_EXIT_STATUS]]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _section(section: Section) -> list[str]:
    title = first_sentence(section.meaning).replace("``", "").rstrip(".")
    if section.prefix:
        title = f"{section.prefix}: {title}"
    elif not title.startswith("Decoding"):
        title = "Settings (KEY=VALUE; quote 'KEY=[...]' and values with commas or spaces)"
    rows = ((f"{s.key}={s.default_text}", first_sentence(s.meaning)) for s in section.settings)
    return [*textwrap.wrap(title, WIDTH, break_on_hyphens=False), *_rows(rows)]


def _flags(program: str) -> Iterator[tuple[str, str]]:
    yield f"{program} --cfg job", "every setting and its value"
    yield f"{program} --hydra-help", "other flags: -m, --info, --config-dir"
    yield f'eval "$({program} -sc install=bash)"', "completion in bash (also zsh, fish)"


def _options(group: str, options: Iterable[str]) -> tuple[str, str]:
    """The names of a group's options, with subfolders such as ``table3/base`` at the end."""
    return group, ", ".join(sorted(options, key=lambda name: "/" in name))


def _rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Two columns; a name that is too long has a line of its own."""
    for name, text in pairs:
        text = text.replace("``", "")
        lines = textwrap.wrap(
            text, WIDTH - _COLUMN, break_on_hyphens=False, break_long_words=False
        ) or [""]
        first = f"  {name}"
        if len(first) + 2 > _COLUMN:
            yield first
            first = ""
        yield f"{first:<{_COLUMN}}{lines[0]}".rstrip()
        yield from (" " * _COLUMN + line for line in lines[1:])
