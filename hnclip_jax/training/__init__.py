"""One run: state, optimiser, step, checkpoints, logging and the loop that orders them."""
