"""Translates a text with an exported folder: all that it needs is CTranslate2 and SentencePiece.

    mt-export model=runs/mine format=ctranslate2 compute_type=int8 output=exported
    python scripts/recipes/translate_exported.py exported < in.en > out.de

With a shortlist, vmap.txt, a translation depends on its batch: CTranslate2 scores the pieces that
are listed for any of its lines. With --json it prints speed and translations of each beam size.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import ctranslate2
import sentencepiece


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of mt-export format=ctranslate2")
    parser.add_argument("--threads", type=int, default=1, help="worker threads (default: 1)")
    parser.add_argument("--batch", type=int, default=32, help="lines of a batch (default: 32)")
    parser.add_argument("--beams", type=int, nargs="+", default=[4], help="beam sizes (default: 4)")
    parser.add_argument("--all-pieces", action="store_true", help="ignore the shortlist, vmap.txt")
    parser.add_argument("--json", action="store_true", help="print figures and translations")
    options = parser.parse_args()
    joint = (options.folder / "tokenizer.model").exists()
    names = ("tokenizer.model", "tokenizer.model") if joint else ("source.spm", "target.spm")
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(options.folder / name))
        for name in names
    )
    # Each worker translates batches of its own, which is faster than to share one.
    translator = ctranslate2.Translator(
        str(options.folder), inter_threads=options.threads, intra_threads=1
    )

    use_vmap = (options.folder / "vmap.txt").exists() and not options.all_pieces

    def pieces(line: str) -> list[str]:
        tag, space, text = line.partition(" ")  # such as <2fr>, a symbol of the vocabulary
        if not (space and source.is_control(source.piece_to_id(tag))):
            tag, text = "", line
        return [tag] * bool(tag) + source.encode(text, out_type=str)

    def translate(lines: list[str], beam: int) -> list[str]:
        """Translates batches of lines of similar length, the longest first."""
        sources = list(map(pieces, lines))
        order = sorted(range(len(lines)), key=lambda i: -len(sources[i]))
        size = options.batch
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        pending = [
            translator.translate_batch(
                [sources[i] for i in batch],
                beam_size=beam,
                # The paper's limit (§6.1): a weak model may repeat itself without end.
                max_decoding_length=len(sources[batch[0]]) + 50,
                use_vmap=use_vmap,
                asynchronous=True,
            )
            for batch in batches
        ]
        translations = [""] * len(lines)
        for batch, results in zip(batches, pending, strict=True):
            for i, result in zip(batch, results, strict=True):
                translations[i] = target.decode_pieces(result.result().hypotheses[0])
        return translations

    if options.json:
        translate(["."], 1)
        print("ready", flush=True)
    # As bytes: in text, Python would also end lines at \r.
    lines = [line.decode().removesuffix("\n") for line in sys.stdin.buffer]
    results = {}
    for beam in options.beams:
        start = time.perf_counter()
        translations = translate(lines, beam)
        words = sum(len(line.split()) for line in lines)
        speed = words / (time.perf_counter() - start)
        results[beam] = {"words_per_second": speed, "translations": translations}
    if options.json:
        print(json.dumps(results))
    else:
        sys.stdout.writelines(f"{line}\n" for line in translations)


if __name__ == "__main__":
    main()
