"""What the commands do, as functions: train, translate_file, translate_stream, evaluate."""
