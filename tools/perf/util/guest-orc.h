/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_ORC_H
#define __PERF_GUEST_ORC_H

#include "guest-user.h"
#include "unwind-orc.h"

struct dso;
struct machine;
struct map;
struct perf_sample;

struct guest_orc;

#ifdef HAVE_LIBELF_SUPPORT
struct guest_orc *guest_orc__load(const char *path, u64 text, const struct dso *kernel,
				  const char **why_not);
enum orc_end guest_orc__unwind(struct guest_orc *orc, struct perf_sample *sample);
int guest_orc__add_module(struct guest_orc *orc, const char *path, int comp, const char *notes,
			  u64 start, u64 end);
bool guest_orc__is_at_hand(void);
void guest_orc__add_map(struct machine *machine, struct map *map);
void guest_orc__remove_map(struct machine *machine, const struct map *map);
void guest_orc__delete(struct guest_orc *orc);
enum orc_end sample__unwind_guest(struct perf_sample *sample, struct machine *machine);
#else
static inline bool guest_orc__is_at_hand(void)
{
	return false;
}

static inline void guest_orc__add_map(struct machine *machine __maybe_unused,
				      struct map *map __maybe_unused) {}
static inline void guest_orc__remove_map(struct machine *machine __maybe_unused,
					 const struct map *map __maybe_unused) {}
static inline void guest_orc__delete(struct guest_orc *orc __maybe_unused) {}
static inline enum orc_end sample__unwind_guest(struct perf_sample *sample,
						struct machine *machine)
{
	sample__add_guest_user(sample, machine);
	return ORC_CONTINUE;
}
#endif

#endif /* __PERF_GUEST_ORC_H */
