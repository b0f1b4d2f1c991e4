"""Who does the batches: this process, several processes, or Ray actors. All give the same results."""
