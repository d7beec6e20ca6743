"""The jobs of the commands: train, translate_file, translate_stream, evaluate, export."""
