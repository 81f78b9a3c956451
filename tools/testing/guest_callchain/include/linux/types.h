/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GUEST_CALLCHAIN_TYPES_H
#define GUEST_CALLCHAIN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint16_t u16;
typedef uint8_t u8;

typedef u64 __u64;
typedef u32 __u32;
typedef s32 __s32;
typedef u16 __u16;
typedef u8 __u8;

#endif /* GUEST_CALLCHAIN_TYPES_H */
