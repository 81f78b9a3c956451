/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_ORC_MODULE_H
#define __PERF_ORC_MODULE_H

#include <libelf.h>

#include "unwind-orc.h"

/* Stock kernels have five sections of code: .text, and some that only boot needs. */
#define ORC_MAX_CODE	32

/**
 * struct orc_code - the code of a kernel or a module, with the contents that its file has
 * @start:	its first address: a kernel's as in the file, a module's as in the guest
 * @end:	the address after its last one
 * @pieces:	the sections whose contents are in the file, but no more than ORC_MAX_CODE of them
 * @nr_pieces:	number of these sections; may be more than ORC_MAX_CODE
 */
struct orc_code {
	u64			start;
	u64			end;
	struct orc_piece	pieces[ORC_MAX_CODE];
	unsigned int		nr_pieces;
};

/**
 * struct orc_module - what is needed to unwind a module's functions
 * @table:	its ORC table; table.end is zero if it has none that perf can use
 * @code:	its code, at the guest's addresses; code.start to code.end may also cover other
 *		code that its direct calls lead to
 * @ips:	memory of table.ips, sorted and relocated; NULL if table.ips points into the file
 * @entries:	memory of table.entries, in the same order; NULL if it points into the file
 */
struct orc_module {
	struct orc_table	table;
	struct orc_code		code;
	u8			*ips;
	u8			*entries;
};

void orc_code__add(struct orc_code *code, u64 addr, u64 size, const Elf_Data *data);
const char *orc_module__read(struct orc_module *module, Elf *elf, u64 start, u64 end,
			     const struct orc_format *format, const Elf_Data *header);
void orc_module__exit(struct orc_module *module);

#endif /* __PERF_ORC_MODULE_H */
