/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_REGS_H
#define __PERF_GUEST_REGS_H

/*
 * The numbers of registers in samples of x86-64 and of arm64.  Both headers define one macro, which
 * code that reads guests doesn't use.
 */
#include "../../arch/arm64/include/uapi/asm/perf_regs.h"
#undef PERF_REG_EXTENDED_MASK
#include "../../arch/x86/include/uapi/asm/perf_regs.h"
#undef PERF_REG_EXTENDED_MASK

#endif /* __PERF_GUEST_REGS_H */
