/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Load the modules of this folder, and talk to them.
 */
#ifndef GUEST_CALLCHAIN_TEST_MODULES_H
#define GUEST_CALLCHAIN_TEST_MODULES_H

#include "modules/test_guest_walk.h"
#include "modules/test_pmi.h"

int load_test_module(const char *name);
int guest_walk_open(void);
void guest_walk_arm(int fd, const struct guest_walk_change *changes, unsigned int nr);
void guest_walk_get_results(int fd, struct guest_walk_result *results, unsigned int nr);

#endif /* GUEST_CALLCHAIN_TEST_MODULES_H */
