/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_GUEST_SANDBOX_H
#define __PERF_GUEST_SANDBOX_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <linux/types.h>

/**
 * enum guest_request_op - what a confined process may ask perf for
 * @GUEST_READ_FILE:	open a file of the VMM's in /proc for reading
 * @GUEST_CREATE_FILE:	create a file below the guest's directory
 * @GUEST_APPEND_FILE:	open a file there for appending
 * @GUEST_MKDIR:	make a directory there, or that directory itself
 * @GUEST_RENAME:	rename a file there
 * @GUEST_UNLINK:	remove a file there
 * @GUEST_FIND_VM:	find the fdinfo of a VM of the VMM's
 * @GUEST_ASK_POLICY:	ask whether the guest may be read
 * @GUEST_TELL:		tell something to the caller of guest_broker__serve()
 * @GUEST_SAY:		print a message
 */
enum guest_request_op {
	GUEST_READ_FILE,
	GUEST_CREATE_FILE,
	GUEST_APPEND_FILE,
	GUEST_MKDIR,
	GUEST_RENAME,
	GUEST_UNLINK,
	GUEST_FIND_VM,
	GUEST_ASK_POLICY,
	GUEST_TELL,
	GUEST_SAY,
};

/* The number of bytes that GUEST_TELL and GUEST_SAY take. */
#define GUEST_TOLD_SIZE		1024

/**
 * struct guest_request - what a confined process asks for
 * @op:		what to do
 * @nr:		number of the VM, what is told, or the length of a message in bytes
 * @path:	path of a file
 * @to:		its new path
 * @told:	what is told or said
 */
struct guest_request {
	enum guest_request_op	op;
	u32			nr;
	union {
		struct {
			char	path[PATH_MAX];
			char	to[PATH_MAX];
		};
		u8		told[GUEST_TOLD_SIZE];
	};
};

/**
 * struct guest_answer - perf's answer; a file descriptor comes with it if a file was opened
 * @error:	zero, or a positive errno
 * @text:	a path, or why the guest may not be read
 */
struct guest_answer {
	int			error;
	char			text[PATH_MAX];
};

bool guest_sandbox__enter(pid_t vmm, int socket);
bool guest_sandbox__is_entered(void);
int guest_sandbox__open(const char *path, enum guest_request_op how);
FILE *guest_sandbox__fopen(const char *path, enum guest_request_op how);
int guest_sandbox__mkdir(const char *path);
int guest_sandbox__rename(const char *path, const char *to);
int guest_sandbox__unlink(const char *path);
bool guest_sandbox__find_vm(unsigned int nr, char path[PATH_MAX]);
const char *guest_sandbox__refusal(void);
void guest_sandbox__tell(u32 what, const void *data, size_t size);

#endif /* __PERF_GUEST_SANDBOX_H */
