"""``mt-export``: convert a model folder to the format of another library."""

from transformer_mt.cli import main as cli
from transformer_mt.cli.entry_points import exit_on_interrupt
from transformer_mt.config import ExportJob


def main() -> None:
    """Run ``mt-export``: compose its job from the command line, then call ``run``."""
    cli.main("export", run)


def run(job: ExportJob) -> None:
    """Convert the model."""
    with exit_on_interrupt("mt-export"):  # loads PyTorch, which --help does not need
        from transformer_mt.jobs.export import export
    with cli.messages_to_stderr("mt-export"):
        export(job)


if __name__ == "__main__":
    main()
