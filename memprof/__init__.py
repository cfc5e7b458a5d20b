"""memprof: where the memory of a PyTorch training run went."""
