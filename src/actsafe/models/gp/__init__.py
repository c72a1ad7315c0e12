"""Gaussian-process dynamics."""
