"""The host poses as eight devices, which JAX asks for before it is used."""

from __future__ import annotations

import jax

jax.config.update("jax_num_cpu_devices", 8)
