"""``mt-translate``: translate a file or a stream."""

from transformer_mt.cli import main as cli
from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import TranslateJob


def main() -> None:
    """Run ``mt-translate``: compose its job from the command line, then call ``run``."""
    cli.main("translate", run)


def run(job: TranslateJob) -> None:
    """Translate from file to file, resumable, or else from standard input or to standard output."""
    with exit_on_interrupt("mt-translate"):  # loads PyTorch, which --help does not need
        from transformer_mt.jobs.translate_file import translate_file, translates_file
        from transformer_mt.jobs.translate_stream import translate_stream
    with cli.messages_to_stderr("mt-translate"):
        if translates_file(job):
            translate_file(job)
        else:
            translate_stream(job)


if __name__ == "__main__":
    main()
