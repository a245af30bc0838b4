"""Attention found in its spelled-out form, and made one operator."""
