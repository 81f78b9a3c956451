// SPDX-License-Identifier: GPL-2.0
/*
 * On x86, distributions install a bzImage in /boot.  It contains the kernel's ELF file, compressed.
 * The offsets here are those of Documentation/arch/x86/boot.rst.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/unaligned.h>
#include <internal/lib.h>

#include "compress.h"
#include "path.h"
#include "vmlinuz.h"

#define SETUP_SECTS		0x1f1
#define SETUP_MAGIC		0x202
#define SETUP_VERSION		0x206
#define SETUP_PAYLOAD_OFFSET	0x248
#define SETUP_PAYLOAD_LENGTH	0x24c
#define SETUP_SIZE		0x250

#define SECTOR_SIZE		512
#define VERSION_WITH_PAYLOAD	0x208

/* No kernel is larger than this, packed or not. */
#define MAX_SIZE		BIT(30)

/* All formats but gzip have the unpacked size appended. */
#define SIZE_BYTES		4

#ifdef HAVE_ZSTD_SUPPORT
static bool unpack_zstd(u8 *data, size_t size, int out)
{
	size_t nr_bytes = get_unaligned_le32(&data[size - SIZE_BYTES]);
	struct zstd_data zstd;
	bool unpacked;
	u8 *vmlinux;

	if (nr_bytes > MAX_SIZE)
		return false;
	vmlinux = malloc(nr_bytes);
	if (!vmlinux)
		return false;

	zstd_init(&zstd, 0);
	unpacked = zstd_decompress_stream(&zstd, data, size - SIZE_BYTES, vmlinux,
					  nr_bytes) == nr_bytes &&
		   writen(out, vmlinux, nr_bytes) == (ssize_t)nr_bytes;
	zstd_fini(&zstd);
	free(vmlinux);
	return unpacked;
}
#else
static bool unpack_zstd(u8 *data __maybe_unused, size_t size __maybe_unused,
			int out __maybe_unused)
{
	return false;
}
#endif

/* Unpack with a function of perf's that reads a file. */
static bool unpack_file(const u8 *data, size_t size, int out,
			int (*unpack)(const char *path, int out))
{
	int in = memfd_create("vmlinuz", MFD_CLOEXEC);
	char path[32];
	bool unpacked;

	if (in < 0)
		return false;
	scnprintf(path, sizeof(path), "/proc/self/fd/%d", in);
	unpacked = writen(in, data, size) == (ssize_t)size && !unpack(path, out);
	close(in);
	return unpacked;
}

static bool unpack(u8 *data, size_t size, int out)
{
	static const u8 zstd[] = { 0x28, 0xb5, 0x2f, 0xfd };
	static const u8 xz[] = { 0xfd, '7', 'z', 'X', 'Z', 0 };

	if (!memcmp(data, zstd, sizeof(zstd)))
		return unpack_zstd(data, size, out);
	if (!memcmp(data, xz, sizeof(xz)))
		return unpack_file(data, size - SIZE_BYTES, out, lzma_decompress_to_file);
#ifdef HAVE_ZLIB_SUPPORT
	if (data[0] == 0x1f && data[1] == 0x8b)
		return unpack_file(data, size, out, gzip_decompress_to_file);
#endif
	return false;
}

/* Return where the packed kernel lies in a bzImage, zero if the file is not a bzImage. */
static u64 find_payload(int fd, size_t *size)
{
	u8 setup[SETUP_SIZE];
	unsigned int sectors;

	if (pread(fd, setup, sizeof(setup), 0) != sizeof(setup) ||
	    memcmp(&setup[SETUP_MAGIC], "HdrS", 4) ||
	    get_unaligned_le16(&setup[SETUP_VERSION]) < VERSION_WITH_PAYLOAD)
		return 0;

	*size = get_unaligned_le32(&setup[SETUP_PAYLOAD_LENGTH]);
	/* For historical reasons, zero stands for four. */
	sectors = setup[SETUP_SECTS] ?: 4;
	return (sectors + 1) * SECTOR_SIZE + (u64)get_unaligned_le32(&setup[SETUP_PAYLOAD_OFFSET]);
}

static bool unpack_payload(int fd, u64 offset, size_t size, int out)
{
	bool unpacked;
	u8 *data;

	if (size < 2 * SIZE_BYTES || size > MAX_SIZE)
		return false;
	data = malloc(size);
	if (!data)
		return false;

	unpacked = preadn(fd, data, size, offset) == (ssize_t)size && unpack(data, size, out);
	free(data);
	return unpacked;
}

/**
 * vmlinuz__open - open a kernel's ELF file
 * @path:	path of the ELF file, or of a bzImage that contains it
 * @fd:		receives the file descriptor; -1 if this fails
 *
 * Return: NULL, or why it can't be opened.
 */
const char *vmlinuz__open(const char *path, int *fd)
{
	size_t size;
	u64 offset;
	int out;

	/* The file may be a guest's, and the guest may have a FIFO there. */
	*fd = -1;
	errno = 0;
	if (is_regular_file(path))
		*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return errno ? strerror(errno) : "it is no regular file";

	offset = find_payload(*fd, &size);
	if (!offset)
		return NULL;

	out = memfd_create("vmlinux", MFD_CLOEXEC);
	if (out >= 0 && !unpack_payload(*fd, offset, size, out)) {
		close(out);
		out = -1;
	}
	close(*fd);
	*fd = out;
	return out < 0 ? "this perf can't unpack it, scripts/extract-vmlinux of Linux may" : NULL;
}
