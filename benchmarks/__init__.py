"""What memprof costs, beside torch.profiler, measured interleaved in one run."""
