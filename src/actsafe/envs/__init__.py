"""Environments: ours and anybody's, one at a time for Gymnasium and in batches for the training loop."""
