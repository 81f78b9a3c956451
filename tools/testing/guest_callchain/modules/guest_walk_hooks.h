/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks that tell guest_walk_changes.c how far a walk of a guest's stack has got.
 */
#ifndef GUEST_WALK_HOOKS_H
#define GUEST_WALK_HOOKS_H

/*
 * Each architecture implements these.  guest_walk_hooks_wait() waits for running hooks to end;
 * after guest_walk_hooks_unregister(), none runs.
 */
int guest_walk_hooks_register(void);
void guest_walk_hooks_unregister(void);
void guest_walk_hooks_wait(void);

/* The hooks call these, in the context of the walk: at translations, at entries, at the end. */
void guest_walk_tables(void);
void guest_walk_element(void);
void guest_walk_end(void);

#endif /* GUEST_WALK_HOOKS_H */
