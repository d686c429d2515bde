"""One idea a file. Each opens with its rule in plain words, its source, its weak side."""
