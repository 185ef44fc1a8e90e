"""A synthesiser of small PyTorch programs whose truth is known: `scripts/dev/generate-programs`."""
