# SPDX-License-Identifier: GPL-2.0-only
"""From the source of a kernel to an emulated host that runs it."""
