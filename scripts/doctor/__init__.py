# SPDX-License-Identifier: GPL-2.0-only
"""Say which parts of guest callchains work on this host, and for the guest of one VMM.

This folder stands alone: copy it to any machine that has Python 3.6 or newer, and run it by
"python3 doctor".  It changes nothing there and needs no root, but it says what root could see in
addition.
"""
